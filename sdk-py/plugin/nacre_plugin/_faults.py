"""Faults: reasons why a call fails."""

from __future__ import annotations


class Fault(Exception):
    """Why a call as a whole did not succeed, by who must act."""


class Retry(Fault):
    """The same call may succeed later: the host calls again."""


class Reject(Fault):
    """The caller asked for something that cannot be."""


class Fatal(Fault):
    """The plugin cannot go on with this state."""


def said(error: Exception) -> str:
    """An error in a line, with the place in the plugin that raised it: ``KeyError: 'city'
    (app.py:9)``.
    """
    message = f"{type(error).__name__}: {error}"
    place, trace = "", error.__traceback__
    while trace is not None:
        frame = trace.tb_frame
        if frame.f_globals.get("__package__") != __package__:
            name = frame.f_code.co_filename.rpartition("/")[2]
            place = f" ({name}:{trace.tb_lineno})"
        trace = trace.tb_next
    return message + place
