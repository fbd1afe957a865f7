"""The wheel: what is in it, how large it is, and that it works where it is installed."""

import os
import subprocess
import sys
import tempfile
import unittest
import zipfile
from pathlib import Path

ROOT = Path(__file__).parents[2]
WHEEL_BYTES_MAX = 300_000
OFFICIAL_INSTALLED = "18.8 MB of native code"
PROGRAM = """
import nacre, nacre.sync, sys
from nacre.sync.cluster import Cluster
from nacre.sync.management.users import User
assert nacre.__file__.startswith(sys.argv[1]), nacre.__file__
"""


class PackageTest(unittest.TestCase):
    def test_the_wheel_is_small_and_whole(self) -> None:
        with tempfile.TemporaryDirectory() as folder:
            pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "--quiet"]
            # Built from a copy, as a build leaves files behind.
            source = Path(folder) / "source"
            source.mkdir()
            for name in ("pyproject.toml", "README.md"):
                (source / name).write_bytes((ROOT / name).read_bytes())
            (source / "src").symlink_to(ROOT / "src")
            self.run_quietly([*pip, "wheel", "--no-deps", "-w", folder, str(source)])
            (wheel,) = Path(folder).glob("*.whl")
            size = wheel.stat().st_size
            print(f"\n{wheel.name}: {size / 1000:.0f} kB (official: {OFFICIAL_INSTALLED})")
            self.assertLessEqual(size, WHEEL_BYTES_MAX)
            with zipfile.ZipFile(wheel) as files:
                names = files.namelist()
                metadata = next(name for name in names if name.endswith("METADATA"))
                self.assertNotIn("Requires-Dist", files.read(metadata).decode())
            here = {str(path.relative_to(ROOT / "src")) for path in ROOT.glob("src/**/*.py")}
            self.assertEqual(here - set(names), set())
            self.assertIn("nacre/py.typed", names)

            target = Path(folder) / "installed"
            self.run_quietly([*pip, "install", "--no-deps", "--target", str(target), str(wheel)])
            environment = {**os.environ, "PYTHONPATH": str(target)}
            self.run_quietly([sys.executable, "-c", PROGRAM, str(target)], environment)

    def run_quietly(self, command: list[str], environment: dict[str, str] | None = None) -> None:
        done = subprocess.run(
            command, capture_output=True, text=True, env=environment or dict(os.environ)
        )
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
