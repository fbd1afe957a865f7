"""Specs of `lookup_in` and `mutate_in`."""

from ..subdocument import *  # noqa: F403
