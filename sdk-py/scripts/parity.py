"""Compares this package with the official one, method by method.

    python3 scripts/parity.py PYTHON [--check]

PYTHON is an interpreter that has the official package, for example that of a virtual environment
after ``pip install couchbase``. The table goes to ``docs/reference/sdk-py-parity.md``; with ``--check``
nothing is written: it fails when the table is old, or something is missing without a reason.
"""

import importlib
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
TABLE = HERE.parents[1] / "docs/reference/sdk-py-parity.md"
MODULES = [
    "acouchbase.transactions",
    "couchbase.transactions",
    "acouchbase.cluster",
    "acouchbase.bucket",
    "acouchbase.scope",
    "acouchbase.collection",
    "acouchbase.binary_collection",
    "acouchbase.datastructures",
    "acouchbase.management.buckets",
    "acouchbase.management.collections",
    "acouchbase.management.users",
    "acouchbase.management.queries",
    "acouchbase.management.views",
    "acouchbase.management.eventing",
    "acouchbase.management.search",
    "acouchbase.management.analytics",
    "couchbase.analytics",
    "couchbase.cluster",
    "couchbase.bucket",
    "couchbase.scope",
    "couchbase.collection",
    "couchbase.binary_collection",
    "couchbase.datastructures",
    "couchbase.management.buckets",
    "couchbase.management.collections",
    "couchbase.management.users",
    "couchbase.management.queries",
    "couchbase.management.views",
    "couchbase.management.eventing",
    "couchbase.management.search",
    "couchbase.management.analytics",
    "couchbase.auth",
    "couchbase.diagnostics",
    "couchbase.kv_range_scan",
    "couchbase.mutation_state",
    "couchbase.n1ql",
    "couchbase.observability.metrics",
    "couchbase.observability.tracing",
    "couchbase.result",
    "couchbase.search",
    "couchbase.subdocument",
    "couchbase.transcoder",
    "couchbase.vector_search",
]
"""Modules of the official package that programs import."""

INTERNAL = (
    "N1QLQuery",
    "N1QLRequest",
    "AnalyticsQuery",
    "AnalyticsRequest",
    "AnalyticsRequestLogic",
    "RangeScanRequest",
    "FullTextSearchRequest",
    "SearchQueryBuilder",
    "ErrorMapper",
    "Base",
    "Supportability",
    "CBCollection",
    "Impl",
    "Logic",
    "Mapper",
    "Map",
    "Handler",
    "MgmtRequest",
    "Core",
    "Type",
)
"""Ends of names of classes that the official package keeps to itself."""

REASONS = [
    (".run_async", "Internal to the official package."),
    ("TransactionQueryResults", "The rows are there already: `rows`."),
    (".create_", "Internal to the official package."),
    (".from_server", "Internal to the official package."),
    ("DeltaValue", "Numbers are checked when they are used."),
    ("SignedInt64", "Numbers are checked when they are used."),
    ("MutationState.add_all", "A bucket keeps no list of its mutations: add results."),
    ("server_groups", "The server does not tell them for a bucket."),
    ("ClusterInfoResult", "Internal to the official package."),
    ("couchbase.result.", "Internal to the official package: the raw answer."),
    ("couchbase.subdocument", "Internal to the official package."),
    ("get_decode_format", "Internal to the official package."),
    ("N1QLQuery", "Internal to the official package."),
    ("uery_context", "Internal to the official package."),
    ("JwtAuthenticator", "Key-value takes no tokens; over HTTP `TokenAuthenticator` has those of nacre."),
    ("cluster_info", "The management service tells it: `GET /pools/default`."),
    ("valid_keys", "Internal to the official package."),
    ("connection", "Internal to the official package."),
    ("loop", "Objects belong to the running loop."),
]
"""Why something is missing, by a part of its name."""

PROBE = """
import importlib, inspect, json, sys
found, known = {}, set()
for module_name in json.loads(sys.argv[1]):
    try:
        module = importlib.import_module(module_name)
    except ImportError:
        continue
    package = module_name.partition(".")[0]
    for name, value in sorted(vars(module).items()):
        if name.startswith("_"):
            continue
        if inspect.isfunction(value) and value.__module__ == module_name:
            found[f"{module_name}.{name}"] = []
        if not inspect.isclass(value) or issubclass(value, (BaseException, dict)):
            continue
        home = value.__module__
        if not home.startswith(("couchbase", "acouchbase")):
            continue
        if not (home == module_name or home.startswith((f"{package}.logic", "couchbase.logic"))
                or ".management.logic" in home or ".transactions" in home):
            continue
        if hasattr(value, "_member_map_") or (package, value) in known:
            continue
        known.add((package, value))
        own = [n for n in dir(value) if not n.startswith("_") and n not in dir(tuple) + dir(int)]
        found[f"{module_name}.{value.__name__}"] = own
import couchbase
print(json.dumps({"version": couchbase.__version__, "found": found}))
"""


OPTIONS_PROBE = """
import ast, json, pathlib, couchbase
root, found = pathlib.Path(couchbase.__file__).parent, {}
for path in ("logic/options.py", "options.py", "management/options.py", "management/logic/management_options.py"):
    path = root / path
    for node in ast.walk(ast.parse(path.read_text())) if path.exists() else ():
        for part in node.body if isinstance(node, ast.ClassDef) else ():
            decorated = [getattr(each, "id", "") for each in getattr(part, "decorator_list", ())]
            if getattr(part, "name", "") == "__init__" and "overload" in decorated:
                names = [each.arg for each in part.args.args + part.args.kwonlyargs]
                found[node.name.removesuffix("Base")] = [name for name in names if name != "self"]
print(json.dumps(found))
"""
"""Names of the options that the overloads of the official package have, by class."""

OPTION_MODULES = ("options", "management.options", "transactions", "views")

OPTION_REASONS = [
    ("DurabilityOptionBlock", "Internal to the official package."),
    ("log_re", "A server of search writes no such log."),
    ("query_string", "Internal to the official package."),
    ("RemoveMultiOptions.transcoder", "A removal has no value."),
    ("CreatePrimaryQueryIndexOptions.condition", "A primary index has all documents."),
    ("SearchOptions.scope_name", "`scope.search` says the scope."),
]
"""Why an option is missing, by a part of its name."""


def options(python: str) -> list[tuple[str, bool, str]]:
    """Options of the official package, whether they are here, and why not."""
    command = [python, "-W", "ignore", "-c", OPTIONS_PROBE]
    found = json.loads(subprocess.run(command, capture_output=True, text=True, check=True).stdout)
    modules = [importlib.import_module(f"nacre.{name}") for name in OPTION_MODULES]
    listed = []
    for name, members in sorted(found.items()):
        kinds = [getattr(module, name) for module in modules if hasattr(module, name)]
        here = {
            each for kind in kinds for base in kind.__mro__ for each in vars(base).get("__annotations__", ())
        }
        here |= {each for kind in kinds for each in getattr(kind, "__optional_keys__", ())}
        for member in members:
            full = f"{name}.{member}"
            why = next((why for part, why in OPTION_REASONS if part in full), "")
            listed.append((full, member in here, "" if member in here else why))
    return listed


def option_lines(listed: list[tuple[str, bool, str]]) -> list[str]:
    """The part of the page about options."""
    there = sum(here for _, here, _ in listed)
    reasons: dict[str, list[str]] = {}
    for name, here, why in listed:
        if not here:
            reasons.setdefault(why, []).append(f"`{name}`")
    return [
        "",
        "## Options",
        "",
        f"The SDK takes {there} of {len(listed)} options of the official classes under the same name: "
        f"{100 * there / len(listed):.1f} %.",
        "An option that is missing is refused by name.",
        "",
        "| missing, and why | options |",
        "| --- | --- |",
        *(f"| {why} | {' '.join(names)} |" for why, names in sorted(reasons.items())),
    ]


def official(python: str) -> dict[str, Any]:
    """Classes and functions of the official package, with their methods."""
    command = [python, "-W", "ignore", "-c", PROBE, json.dumps(MODULES)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def ours(path: str) -> Any:
    """What stands here for a class or function of the official package; None if nothing does."""
    module_name, _, name = path.rpartition(".")
    package, _, rest = module_name.partition(".")
    prefix = "nacre" if package == "acouchbase" else "nacre.sync"
    for candidate in dict.fromkeys((name.removeprefix("Async"), name)):
        for place in (f"{prefix}.{rest}", f"nacre.{rest}"):
            try:
                module = importlib.import_module(place)
            except ImportError:
                continue
            if hasattr(module, candidate):
                return getattr(module, candidate)
    return None


def has(found: Any, method: str) -> bool:
    """Whether something stands for a method: a method, or an attribute of a data class."""
    named = {name for kind in found.__mro__ for name in getattr(kind, "__annotations__", ())}
    return hasattr(found, method) or method in named


def reason(path: str) -> str:
    """Why something is missing."""
    return next((why for part, why in REASONS if part in path), "")


def rows(found: dict[str, list[str]]) -> list[tuple[str, str, bool, str]]:
    """Class, method, whether it is here, and why not."""
    listed = []
    seen: set[tuple[str, str]] = set()
    for path, methods in sorted(found.items()):
        module, _, name = path.rpartition(".")
        if name.endswith(INTERNAL) and name != "MutationToken":
            continue
        here = ours(path)
        group = f"{module}.{name}" if methods else module
        for method in methods or [name]:
            if (group, method) in seen:
                continue
            seen.add((group, method))
            there = here is not None and (not methods or has(here, method))
            listed.append((group, method, there, "" if there else reason(f"{group}.{method}")))
    return listed


def table(version: str, listed: list[tuple[str, str, bool, str]]) -> str:
    """The page."""
    there = sum(row[2] for row in listed)
    served = sum(not row[3].startswith("Internal") for row in listed)
    groups: dict[str, list[tuple[str, bool, str]]] = {}
    for group, *row in listed:
        groups.setdefault(group, []).append((row[0], row[1], row[2]))
    lines = [
        "# The Python SDK compared with the official one",
        "",
        f"`sdk-py/scripts/parity.py` generates this table from the package `couchbase` {version} "
        "of PyPI.",
        f"The SDK has {there} of the {len(listed)} public methods, functions and attributes under "
        f"the same name: {100 * there / len(listed):.1f} %.",
        f"Without internals of the official package, it has {there} of {served}: "
        f"{100 * there / served:.1f} %.",
        "Modules of `acouchbase` are those of `nacre`; modules of `couchbase` are those of "
        "`nacre.sync`.",
        "",
        "| official | here | missing, and why |",
        "| --- | --- | --- |",
    ]
    for group, members in sorted(groups.items()):
        present = " ".join(f"`{name}`" for name, there, _ in members if there)
        reasons: dict[str, list[str]] = {}
        for name, there, why in members:
            if not there:
                reasons.setdefault(why, []).append(f"`{name}`")
        missing = " ".join(f"{' '.join(names)}: {why}" for why, names in reasons.items())
        lines.append(f"| `{group}` | {present} | {missing} |")
    return "\n".join(lines) + "\n"


def main() -> None:
    """Writes the page."""
    if len(sys.argv) not in (2, 3):
        sys.exit(__doc__)
    sys.path.insert(0, str(HERE.parent / "src"))
    found = official(sys.argv[1])
    listed = rows(found["found"])
    asked = options(sys.argv[1])
    page = table(found["version"], listed) + "\n".join(option_lines(asked)) + "\n"
    unexplained = [f"{row[0]}.{row[1]}" for row in listed if not row[2] and not row[3]]
    unexplained += [f"option {name}" for name, here, why in asked if not here and not why]
    there = sum(row[2] for row in listed)
    print(f"{there} of {len(listed)} are here; without a reason: {len(unexplained)}")
    for path in unexplained:
        print(" ", path)
    if sys.argv[2:] != ["--check"]:
        TABLE.write_text(page)
    elif unexplained or TABLE.read_text() != page:
        sys.exit("the table is old, or something has no reason: cargo xtask sdk parity")


if __name__ == "__main__":
    main()
