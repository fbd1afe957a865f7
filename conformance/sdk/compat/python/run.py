"""Runs the programs of this folder with one package, and prints the result of each as a line of JSON.

    python3 run.py PACKAGE URL USER PASSWORD BUCKET SCOPE [PART-OF-A-NAME]

PACKAGE is ``couchbase``, or ``nacre`` for ours: then only the imports of the programs are changed. A line is
{program, value} or {program, error}.
"""

import importlib
import inspect
import json
import re
import signal
import sys
import types
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any

PROGRAMS = Path(__file__).parent / "programs"
PROGRAM_S_MAX = 60
COLLECTIONS = ("people", "indexed", "primary", "scanned")


@dataclass
class Context:
    """The environment of a program."""

    cluster: Any
    bucket: Any
    scope: Any
    collection: Any
    key: str
    url: str
    user: str
    password: str

    def fails(self, call: Any, *args: Any, **options: Any) -> str | None:
        """Returns the name of the exception that a call raises; None if it raises none."""
        try:
            call(*args, **options)
        except Exception as error:
            return type(error).__name__
        return None


IMPORT = re.compile(r"^(from|import) (a?)couchbase\b", re.MULTILINE)
NAME = re.compile(r"\bcouchbase\.exceptions\b")


def changed(text: str) -> str:
    """Returns a program with changed imports: `acouchbase` becomes `nacre`, and `couchbase` becomes `nacre.sync`."""
    # A program for asyncio also imports options and errors from `couchbase`: `nacre` has them in the same modules.
    ours = "nacre" if "acouchbase" in text else "nacre.sync"
    text = IMPORT.sub(lambda found: f"{found[1]} {'nacre' if found[2] else ours}", text)
    return NAME.sub(f"{ours}.exceptions", text)


def load(package: str) -> list[tuple[str, Any]]:
    """Returns the programs by name."""
    found = []
    for path in sorted(PROGRAMS.glob("*.py")):
        text = path.read_text()
        module = types.ModuleType(f"programs.{path.stem}")
        exec(compile(changed(text) if package == "nacre" else text, str(path), "exec"), module.__dict__)
        for name, value in vars(module).items():
            if isinstance(value, types.FunctionType) and value.__module__ == module.__name__:
                if list(inspect.signature(value).parameters) == ["c"] and not inspect.iscoroutinefunction(value):
                    found.append((f"{path.stem}: {name}", value))
    return found


def prepare(cluster: Any, bucket_name: str, scope_name: str) -> None:
    """Creates the scope of this run, and its collections."""
    collections = cluster.bucket(bucket_name).collections()
    collections.create_scope(scope_name)
    for name in COLLECTIONS:
        collections.create_collection(scope_name, name)
    scope = cluster.bucket(bucket_name).scope(scope_name)
    for name in COLLECTIONS:
        scope.collection(name).upsert("ready", {}, timeout=timedelta(seconds=10))
    scope.collection("people").query_indexes().create_primary_index()


def late(*_: Any) -> None:
    """Stops a program that does not end by itself."""
    raise TimeoutError("the program does not end")


def outcome(program: Any, context: Context) -> dict[str, Any]:
    """Returns the result of a program."""
    signal.alarm(PROGRAM_S_MAX)
    try:
        return {"value": program(context)}
    except Exception as error:
        return {"error": f"{type(error).__name__}: {error}"}
    finally:
        signal.alarm(0)


def main() -> None:
    """Runs the programs."""
    package, url, user, password, bucket_name, scope_name, *rest = sys.argv[1:]
    part = rest[0] if rest else ""
    root = "nacre.sync" if package == "nacre" else "couchbase"
    signal.signal(signal.SIGALRM, late)
    auth = importlib.import_module(f"{root}.auth").PasswordAuthenticator(user, password)
    options = importlib.import_module(f"{root}.options").ClusterOptions(auth)
    cluster = importlib.import_module(f"{root}.cluster").Cluster.connect(url, options)
    prepare(cluster, bucket_name, scope_name)
    bucket = cluster.bucket(bucket_name)
    for name, program in load(package):
        if part not in name:
            continue
        key = f"{scope_name}-{re.sub(r'[^a-z0-9]+', '-', name)}"
        scope = bucket.scope(scope_name)
        context = Context(cluster, bucket, scope, bucket.default_collection(), key, url, user, password)
        print(json.dumps({"program": name, **outcome(program, context)}, default=str), flush=True)
    bucket.collections().drop_scope(scope_name)
    cluster.close()


if __name__ == "__main__":
    main()
