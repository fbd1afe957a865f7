"""Vectors to search for."""

from ..vector_search import *  # noqa: F403
