"""The table of what the official package has is true of this one."""

import importlib.util
import inspect
import re
import unittest
from pathlib import Path

SDK = Path(__file__).parents[2]
TABLE = SDK.parent / "docs/reference/sdk-py-parity.md"
ROW = re.compile(r"\| `([\w.]+)` \| (.*?) \| (.*) \|")


class ParityTest(unittest.TestCase):
    def test_what_the_table_says_is_here_is_here(self) -> None:
        spec = importlib.util.spec_from_file_location("parity", SDK / "scripts/parity.py")
        assert spec is not None and spec.loader is not None
        parity = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(parity)
        rows = [match for line in TABLE.read_text().splitlines() if (match := ROW.match(line))]
        self.assertGreater(len(rows), 100)
        for row in rows:
            group, present, missing = row.groups()
            for name in re.findall(r"`(\w+)`", present):
                with self.subTest(group, name=name):
                    found = parity.ours(group)
                    if inspect.isclass(found):
                        self.assertTrue(parity.has(found, name))
                    else:
                        # A function, or a class without methods, of a module.
                        self.assertIsNotNone(parity.ours(f"{group}.{name}"))
            # What is missing has a reason behind its names.
            self.assertEqual(bool(missing), ": " in missing, group)
