"""Attacks a node as hostile strangers, users, browsers and neighbours would, and shows that it holds.

    python3 -m attacks --binary target/debug/nacre          # from the folder conformance
    python3 -m attacks --binary … --only logins --short
"""

import argparse
import importlib
import pkgutil
import sys
import tempfile
from pathlib import Path

from . import harness

NOT_CASES = {"__main__", "harness", "kv", "bystander"}


def main():
    """Runs the cases that the command line selects."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--binary", required=True, help="the program nacre")
    parser.add_argument("--plugin-cache", default=Path(tempfile.gettempdir()) / "nacre-attack-plugins", help="compiled plugins")
    parser.add_argument("--first-port", type=int, default=26_000, help="lowest port of the nodes")
    parser.add_argument("--only", default="", help="cases whose group or name contains this")
    parser.add_argument("--short", action="store_true", help="leave out the heavy cases")
    parser.add_argument("--list", action="store_true", help="list the cases and run none")
    arguments = parser.parse_args()

    for module in pkgutil.iter_modules([str(Path(__file__).parent)]):
        if module.name not in NOT_CASES:
            importlib.import_module(f"{__package__}.{module.name}")
    chosen = [
        case for case in harness.CASES
        if arguments.only in f"{case.group}: {case.name}" and not (arguments.short and case.heavy)
    ]
    if arguments.list:
        for case in chosen:
            print(f"{case.group}: {case.name}{' (heavy)' if case.heavy else ''}")
        return 0
    passed, failed = harness.run(chosen, arguments.binary, arguments.plugin_cache, arguments.first_port)
    print(f"{passed} passed, {failed} failed")
    return 1 if failed or not passed else 0


if __name__ == "__main__":
    sys.exit(main())
