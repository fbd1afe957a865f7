"""An audit trail: every change of a collection, queried by document and time.

State:

    trail/<id>/<time>/<seqno>    the change of a document, as JSON
    time/<time>/<vb>/<seqno>     the id of the document changed at that time
    sweep                        exists while the timer of that name is set

Ids are percent-encoded, so that no id is a prefix of another one's key; numbers are hexadecimal of
fixed length, so that keys are in order of time. The time of a change is its CAS, which never
changes: a trail that is rebuilt has the same entries, and a change that arrives twice is stored
once.

Configuration: ``{"retention_days": 365}``; 0 keeps everything.
"""

import base64
import json
from datetime import UTC, datetime, timedelta
from typing import Any
from urllib.parse import quote

from nacre_plugin import Event, Reject, Request, Response, Service, Timer, export, state, timer

DAY_US = 86_400_000_000
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
LAST = "~"
"""Above all times in the order of keys."""
PAGE_ENTRIES, PAGE_ENTRIES_MAX = 100, 1000
SWEEP_ENTRIES = 500
"""Entries that one call removes; more wait for the next."""


@export
class AuditTrail(Service):
    name = "audit-trail"

    def __init__(self, config: Any) -> None:
        days = config.get("retention_days", 365)
        if not isinstance(days, int | float) or days < 0:
            raise Reject(f"retention_days is a number of days, not {days!r}")
        self.retention_us = int(days * DAY_US)

    def on_update(self, doc: Any, meta: Event) -> None:
        if isinstance(doc, bytes):
            self.keep({"kind": "update", "base64": base64.b64encode(doc).decode()}, meta)
            return
        before = last(meta.id).get("doc")
        self.keep({"kind": "update", "changed": changed(before, doc), "doc": doc}, meta)

    def on_delete(self, meta: Event) -> None:
        self.keep({"kind": meta.kind.name.lower()}, meta)

    def keep(self, entry: dict[str, Any], meta: Event) -> None:
        at_us = meta.cas // 1000
        entry = {"at": shown(at_us), **entry, "rev": meta.rev, "seqno": meta.seqno}
        state.put(trail_key(meta.id, at_us, meta.seqno), entry)
        state.put(time_key(at_us, meta.vb, meta.seqno), meta.id)
        if self.retention_us and state.get("sweep") is None:
            self.sweep_at(at_us + self.retention_us)

    def sweep_at(self, due_us: int) -> None:
        state.put("sweep", shown(due_us))
        timer.set("sweep", due_us)

    def on_timer(self, now_us: int, due: Timer) -> None:
        """Removes entries older than the retention, and sets a timer for the next one."""
        state.delete("sweep")
        for removed, (key, document) in enumerate(state.scan_prefix("time/")):
            at_us, _, seqno = numbers(key)
            if at_us + self.retention_us > now_us or removed == SWEEP_ENTRIES:
                self.sweep_at(max(at_us + self.retention_us, now_us))
                return
            state.delete(key)
            state.delete(trail_key(document.decode(), at_us, seqno))

    def rollback(self, vb: int, seqno: int) -> int | None:
        """Removes the changes of a vBucket that were rolled back, the newest first.

        Entries removed by age are not in the state, so the walk ends at a change that stays, or at
        the last existing entry.
        """
        for key, document in state.scan_prefix("time/", reverse=True):
            at_us, of_vb, of_seqno = numbers(key)
            if of_vb != vb:
                continue
            if of_seqno <= seqno:
                break
            state.delete(key)
            state.delete(trail_key(document.decode(), at_us, of_seqno))
        return seqno

    def handle(self, request: Request) -> Response:
        if request.method != "GET":
            return Response.json(405, {"error": "the trail can only be read"})
        try:
            found = page(request.path[1:], request.args)
        except ValueError as error:
            return Response.json(400, {"error": str(error)})
        return Response.json(200, found)


def page(document: str, args: dict[str, str]) -> dict[str, Any]:
    """Returns changes of a document, or of all if empty: ``from <= time < to``, oldest first.

    ``next``, if there are more, is the ``from`` of the next page. It is more than a time, because
    changes of one time may be on two pages.
    """
    limit = int(args.get("limit", PAGE_ENTRIES))
    if not 1 <= limit <= PAGE_ENTRIES_MAX:
        raise ValueError(f"limit is 1 to {PAGE_ENTRIES_MAX}")
    prefix = f"trail/{quote(document, safe='')}/" if document else "time/"
    start, end = prefix + bound(args.get("from", "")), prefix + bound(args.get("to", LAST))
    found = [*state.scan(start, end, limit + 1)]
    rest = {"next": found[limit][0].decode().removeprefix(prefix)} if found[limit:] else {}
    if document:
        return {"entries": [json.loads(entry) for _, entry in found[:limit]], **rest}
    return {"entries": [of_all(key, id.decode()) for key, id in found[:limit]], **rest}


def of_all(key: bytes, id: str) -> dict[str, Any]:
    at_us, _, seqno = numbers(key)
    return {"id": id, **state.get_json(trail_key(id, at_us, seqno))}


def bound(text: str) -> str:
    """Returns the position in key order of a time in ISO 8601 or of a ``next`` value."""
    if text in ("", LAST) or "/" in text:
        return text
    at = datetime.fromisoformat(text)
    at = at if at.tzinfo else at.replace(tzinfo=UTC)
    return f"{max((at - EPOCH) // timedelta(microseconds=1), 0):016x}"


def last(id: str) -> dict[str, Any]:
    """Returns the newest stored change of a document, or an empty dictionary."""
    for _, entry in state.scan_prefix(f"trail/{quote(id, safe='')}/", limit=1, reverse=True):
        return dict(json.loads(entry))
    return {}


def changed(before: Any, after: Any) -> list[str]:
    """Returns the members that differ."""
    before, after = (side if isinstance(side, dict) else {} for side in (before, after))
    names = sorted(before.keys() | after.keys())
    return [name for name in names if before.get(name, ...) != after.get(name, ...)]


def trail_key(id: str, at_us: int, seqno: int) -> str:
    return f"trail/{quote(id, safe='')}/{at_us:016x}/{seqno:016x}"


def time_key(at_us: int, vb: int, seqno: int) -> str:
    return f"time/{at_us:016x}/{vb:04x}/{seqno:016x}"


def numbers(time_key: bytes) -> tuple[int, int, int]:
    """Returns the time, vBucket and seqno in a key of ``time/``."""
    _, at_us, vb, seqno = time_key.split(b"/")
    return int(at_us, 16), int(vb, 16), int(seqno, 16)


def shown(at_us: int) -> str:
    return (EPOCH + timedelta(microseconds=at_us)).isoformat()
