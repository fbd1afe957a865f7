"""The projects in Python that the repository has, by their scripts: as plain Python, without
building them.
"""

import importlib.util
import json
import sys
import unittest
from pathlib import Path
from types import ModuleType

from nacre_plugin_testing import BEGIN_US, Harness, play

REPOSITORY = Path(__file__).parents[3]
TEMPLATES = REPOSITORY / "server/nacre-plugin-tools/templates"
AUDIT_TRAIL = REPOSITORY / "examples/audit-trail"


def load(path: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location("app", path)
    assert spec is not None and spec.loader is not None
    module = sys.modules["app"] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


class ExamplesTest(unittest.TestCase):
    def test_the_template_counts_as_its_script_says(self) -> None:
        script = json.loads((TEMPLATES / "counts.json").read_text())
        self.assertEqual(play(load(TEMPLATES / "py/app.py").Counter, script), [])

    def test_the_template_counts_what_has_no_type(self) -> None:
        counter = Harness(load(TEMPLATES / "py/app.py").Counter)
        counter.put("a", [1]).put("b", {"type": 7}).put("c", b"\xff")
        self.assertEqual(counter.feed(), [])
        self.assertEqual(json.loads(counter.get("/").body), {"none": 3})

    def test_the_audit_trail_passes_its_scripts(self) -> None:
        trail = load(AUDIT_TRAIL / "app.py").AuditTrail
        scripts = sorted((AUDIT_TRAIL / "tests").glob("*.json"))
        self.assertEqual(len(scripts), 3)
        for path in scripts:
            with self.subTest(script=path.stem):
                self.assertEqual(play(trail, json.loads(path.read_text())), [])

    def test_the_audit_trail_forgets_what_never_was(self) -> None:
        trail = Harness(load(AUDIT_TRAIL / "app.py").AuditTrail)
        for seconds, key in enumerate(["a", "a", "a", "other"]):
            trail.now_us = BEGIN_US + seconds
            trail.put(key, {"n": seconds}).feed()
        before = dict(trail.state)
        vb = trail.vbucket("a")
        self.assertEqual(trail.rollback(vb, 3), 3)
        self.assertEqual(trail.state, before)
        self.assertEqual(trail.rollback(vb, 1), 1)
        entries = json.loads(trail.get("/a").body)["entries"]
        self.assertEqual([entry["doc"] for entry in entries], [{"n": 0}])
        self.assertEqual(len(json.loads(trail.get("/").body)["entries"]), 2)

    def test_the_audit_trail_removes_old_changes_in_pieces(self) -> None:
        app = load(AUDIT_TRAIL / "app.py")
        trail = Harness(app.AuditTrail, {"retention_days": 1})
        for number in range(2 * app.SWEEP_ENTRIES + 1):
            trail.put(f"k{number}", {})
        trail.feed()
        trail.advance(86_400 - 1)
        self.assertEqual(len(trail.state), 2 * (2 * app.SWEEP_ENTRIES + 1) + 1)
        trail.advance(1)
        self.assertEqual((trail.state, trail.timers), ({}, []))


if __name__ == "__main__":
    unittest.main()
