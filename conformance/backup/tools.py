"""Reads what nacre exports with pandas and pyarrow, and stores a backup repository with restic.

Usage: tools.py NACRE URL USER PASSWORD RESTIC, with the bucket `default`.
"""

import datetime
import decimal
import filecmp
import io
import json
import os
import subprocess
import sys
import tempfile

import pandas
import pyarrow
import pyarrow.parquet

BINARY, URL, USER, PASSWORD, RESTIC = sys.argv[1:6]
DOCUMENTS = 5000
# Larger than one row group of 32 MiB.
LARGE_DOCUMENTS, LARGE_BYTES = 72, 1 << 20


def run(*arguments, stdin=None, text=True):
    """Runs a command that must succeed; returns its output."""
    done = subprocess.run(arguments, input=stdin, text=text, capture_output=True, timeout=300)
    assert done.returncode == 0, f"{arguments}: {done.stdout!r}{done.stderr!r}"
    return done.stdout


def nacre(*arguments, **options):
    return run(BINARY, *arguments, **options)


def document(n):
    """Returns a document with members of all types, some of which are missing or null in some documents."""
    found = {"id": f"key-{n}", "n": n - 100, "price": n / 4, "active": n % 3 == 0, "tags": [n, "é"]}
    if n % 7 == 0:
        del found["price"]
    if n % 5 == 0:
        found["n"] = None
    found["name"] = f'"{n}", a name\nof two lines ' + "x" * 300
    return found


def rows(documents):
    return "".join(json.dumps(found) + "\n" for found in documents)


def check_parquet(folder, documents):
    """Parquet files contain the documents, with the requested types."""
    path = os.path.join(folder, "all.parquet")
    nacre("export", "parquet", "--bucket", "default", "--output", path, "--quiet")
    table = pyarrow.parquet.read_table(path)
    assert table.schema.names == ["key", "scope", "collection", "document"], table.schema
    assert all(kind == pyarrow.string() for kind in table.schema.types), table.schema
    found = {row["key"]: row for row in table.to_pylist()}
    assert len(found) == table.num_rows == DOCUMENTS
    for key, expected in documents.items():
        row = found[key]
        assert (row["scope"], row["collection"]) == ("_default", "_default"), row
        assert json.loads(row["document"]) == expected, row
    # Standard output has the same content as a file; the order of rows is that of the streams.
    printed = nacre("export", "parquet", "--bucket", "default", "--threads", "1", "--quiet", text=False)
    assert pyarrow.parquet.read_table(io.BytesIO(printed)).num_rows == DOCUMENTS

    path = os.path.join(folder, "columns.parquet")
    fields = "_id,n:integer,price:double,active:boolean,tags,name,none"
    nacre("export", "parquet", "--bucket", "default", "--include-key", "_id", "--fields", fields, "-o", path, "--quiet")
    schema = pyarrow.parquet.read_schema(path)
    kinds = [pyarrow.string(), pyarrow.int64(), pyarrow.float64(), pyarrow.bool_()] + [pyarrow.string()] * 3
    assert schema.types == kinds, schema
    frame = pandas.read_parquet(path).set_index("_id")
    assert frame["none"].isna().all() and len(frame) == DOCUMENTS
    for key, expected in documents.items():
        row = frame.loc[key]
        for name in ["n", "price"]:
            value = expected.get(name)
            assert pandas.isna(row[name]) if value is None else row[name] == value, (key, name, row)
        assert bool(row["active"]) == expected["active"], (key, row)
        assert json.loads(row["tags"]) == expected["tags"] and row["name"] == expected["name"], row
    expected = sum(found["n"] for found in documents.values() if found["n"] is not None)
    assert int(frame["n"].sum()) == expected


def check_import(folder, documents):
    """Files of Parquet come back: those of nacre as they were, and those of pyarrow with the values of all types."""
    nacre("bucket", "create", "back", "--ram-mb", "256")
    path = os.path.join(folder, "all.parquet")
    options = ["--bucket", "back", "--key", "%key%", "--document-field", "document", "--quiet"]
    said = nacre("import", "parquet", path, *options)
    assert f"imported {DOCUMENTS} documents" in said, said
    printed = nacre("export", "json", "--bucket", "back", "--include-key", "_id", "--quiet")
    found = {row.pop("_id"): row for row in map(json.loads, printed.splitlines())}
    assert found == documents

    moment = datetime.datetime(2026, 11, 28, 12, 30, 0, 123456, tzinfo=datetime.timezone.utc)
    columns = {
        "id": pyarrow.array(["a", "b"]),
        "n": pyarrow.array([1, None], pyarrow.int16()),
        "big": pyarrow.array([2**64 - 1, 0], pyarrow.uint64()),
        "x": pyarrow.array([0.1, float("nan")], pyarrow.float32()),
        "half": pyarrow.array([0.5, 1.5], pyarrow.float16()),
        "price": pyarrow.array([decimal.Decimal("12.30"), decimal.Decimal("-0.05")], pyarrow.decimal128(20, 2)),
        "day": pyarrow.array([moment.date()] * 2),
        "at": pyarrow.array([moment.time()] * 2, pyarrow.time64("us")),
        "utc": pyarrow.array([moment] * 2, pyarrow.timestamp("ns", "UTC")),
        "local": pyarrow.array([moment.replace(tzinfo=None)] * 2, pyarrow.timestamp("ms")),
        "bytes": pyarrow.array([b"\xff\0", b""]),
        "tags": pyarrow.array([["x", None], []], pyarrow.list_(pyarrow.string())),
        "place": pyarrow.array([{"lat": 1.5, "names": [{"n": 1}]}, None]),
        "map": pyarrow.array([[("k", 1)], None], pyarrow.map_(pyarrow.string(), pyarrow.int64())),
        "kind": pyarrow.array(["red", "blue"]).dictionary_encode(),
    }
    expected = {
        "id": "a",
        "n": 1,
        "big": 2**64 - 1,
        "x": 0.1,
        "half": 0.5,
        "price": 12.3,
        "day": "2026-11-28",
        "at": "12:30:00.123456",
        "utc": "2026-11-28T12:30:00.123456Z",
        "local": "2026-11-28T12:30:00.123",
        "bytes": "/wA=",
        "tags": ["x", None],
        "place": {"lat": 1.5, "names": [{"n": 1}]},
        "map": {"k": 1},
        "kind": "red",
    }
    for compression in ["none", "snappy", "gzip", "zstd"]:
        path = os.path.join(folder, f"{compression}.parquet")
        pyarrow.parquet.write_table(pyarrow.table(columns), path, compression=compression)
        nacre("import", "parquet", path, "--bucket", "back", "--key", compression + "_%id%", "--quiet")
        assert json.loads(nacre("doc", "get", f"{compression}_a", "--bucket", "back")) == expected
        second = json.loads(nacre("doc", "get", f"{compression}_b", "--bucket", "back"))
        assert (second["n"], second["x"], second["price"], second["tags"]) == (None, None, -0.05, []), second


def check_text(documents):
    """pandas reads JSON lines and CSV."""
    frame = pandas.read_json(io.StringIO(nacre("export", "json", "--bucket", "default", "--quiet")), lines=True)
    assert sorted(frame["id"]) == sorted(documents), frame
    printed = nacre("export", "csv", "--bucket", "default", "--fields", "id,n,name", "--quiet")
    frame = pandas.read_csv(io.StringIO(printed)).set_index("id")
    assert len(frame) == DOCUMENTS
    assert all(frame.loc[key, "name"] == found["name"] for key, found in documents.items())


def check_groups(folder):
    """A file with several row groups contains all of them."""
    nacre("bucket", "create", "large", "--ram-mb", "256")
    large = ({"id": f"large-{n}", "filler": chr(97 + n % 26) * LARGE_BYTES} for n in range(LARGE_DOCUMENTS))
    nacre("import", "json", "-", "--bucket", "large", "--key", "%id%", "--quiet", stdin=rows(large))
    path = os.path.join(folder, "large.parquet")
    nacre("export", "parquet", "--bucket", "large", "--output", path, "--quiet")
    file = pyarrow.parquet.ParquetFile(path)
    assert (file.num_row_groups, file.metadata.num_rows) == (3, LARGE_DOCUMENTS), file.metadata
    for row in file.read().to_pylist():
        found = json.loads(row["document"])
        assert found["id"] == row["key"] and len(found["filler"]) == LARGE_BYTES, row["key"]


def check_restic(folder):
    """A repository restored by restic is unchanged."""
    repository, kept, back = (os.path.join(folder, name) for name in ["backups", "kept", "back"])
    nacre("backup", "create", repository, "--bucket", "default", "--quiet")
    nacre("import", "json", "-", "--bucket", "default", "--key", "%id%", "--quiet", stdin=rows([document(1)]))
    nacre("backup", "create", repository, "--bucket", "default", "--quiet")
    os.environ.update(RESTIC_REPOSITORY=kept, RESTIC_PASSWORD="secret", RESTIC_CACHE_DIR=os.path.join(folder, "cache"))
    run(RESTIC, "init")
    run(RESTIC, "backup", repository)
    run(RESTIC, "check", "--read-data")
    run(RESTIC, "restore", "latest", "--target", back)
    restored = back + repository
    names = [
        os.path.relpath(os.path.join(path, name), repository)
        for path, _, files in os.walk(repository)
        for name in files
    ]
    same, different, missing = filecmp.cmpfiles(repository, restored, names, shallow=False)
    assert (sorted(same), different, missing) == (sorted(names), [], []), (different, missing)
    said = nacre("backup", "verify", restored, "--read-data")
    assert said.startswith("2 manifests"), said
    said = nacre("backup", "diff", restored, "--bucket", "default")
    assert f"{DOCUMENTS} documents the same, 0 different" in said, said


def main():
    os.environ.update(NACRE_SERVER=URL, NACRE_USER=USER, NACRE_PASSWORD=PASSWORD)
    documents = {f"key-{n}": document(n) for n in range(DOCUMENTS)}
    nacre("import", "json", "-", "--bucket", "default", "--key", "%id%", "--quiet", stdin=rows(documents.values()))
    with tempfile.TemporaryDirectory() as folder:
        check_parquet(folder, documents)
        check_import(folder, documents)
        check_text(documents)
        check_groups(folder)
        check_restic(folder)
    print(f"{DOCUMENTS} documents read by pandas {pandas.__version__} and pyarrow {pyarrow.__version__}, kept by restic")


main()
