"""Counts documents by their member "type".

State: ``doc/<id>`` is the type that a document was counted under, ``type/<type>`` is how many there are.
"""

from typing import Any

from nacre_plugin import Event, Request, Response, Service, export, state


@export
class Counter(Service):
    name = "{{name}}"

    def on_update(self, doc: Any, meta: Event) -> None:
        named = doc.get("type") if isinstance(doc, dict) else None
        self.count(meta, named if isinstance(named, str) else "none")

    def on_delete(self, meta: Event) -> None:
        self.count(meta, None)

    def handle(self, request: Request) -> Response:
        counts = state.scan_prefix("type/")
        return Response.json(200, {key[len(b"type/") :].decode(): int(n) for key, n in counts})

    def count(self, meta: Event, new: str | None) -> None:
        """Counts a document under its new type, and no longer under its old one."""
        known = b"doc/" + meta.key
        old = state.get_text(known)
        if old is not None:
            self.add(old, -1)
        if new is not None:
            state.put(known, new)
            self.add(new, 1)
        else:
            state.delete(known)

    def add(self, name: str, delta: int) -> None:
        count = state.get_json(f"type/{name}", 0) + delta
        if count:
            state.put(f"type/{name}", count)
        else:
            state.delete(f"type/{name}")
