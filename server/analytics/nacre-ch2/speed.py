"""Measures the queries of CH2 in analytics, DuckDB and other engines, freshly loaded and after changes.

    python speed.py PROGRAM FOLDER [PEER…]

PROGRAM is the example `ch2` of nacre-analytics, FOLDER has the files that `ch2 write` made, a PEER is `spark` or a connection string of
PostgreSQL. Prints tables in Markdown.

All engines use one thread, and run each query in turn. Times are processor times of the engine's process, so that other programs on
the machine disturb them little. They include planning; analytics also converts its rows to JSON. PostgreSQL has documents in a column
of type jsonb, with an index of their IDs, and statistics of all fields that are columns elsewhere. Spark has cached tables with arrays of
structures, which changes replace by new tables. All must return the same number of rows.
"""

import math
import os
import pathlib
import statistics
import subprocess
import sys
import time

import duckdb

from compare import COLUMNS, LINE, LINES, source

QUERIES = range(1, 23)
#: Measured runs of each query, after one that is not measured.
RUNS = 5
#: A query that takes longer runs once.
LONG_MS = 2000
#: PostgreSQL ends a query after this time.
LIMIT_MS = 60_000
FOLDER = pathlib.Path(__file__).parent / "queries"


def status(process, field):
    """Returns a field of the status of a process, in MB."""
    lines = pathlib.Path(f"/proc/{process}/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith(field + ":")) / 1024


class Engine:
    """An engine whose work is done by one process."""

    def clock(self):
        """Returns the milliseconds of processor time of the process. The clock's ID is computed as in clock_getcpuclockid."""
        return time.clock_gettime_ns(~self.process << 3 | 2) / 1e6

    def timed(self, work, *arguments):
        """Returns the milliseconds of processor time that some work takes, and its result."""
        begun = self.clock()
        result = work(*arguments)
        return self.clock() - begun, result

    def count(self, result):
        """Returns the number of rows of a result; None if the query was ended."""
        return result

    def peak(self):
        """Returns the peak of the memory of the process in MB."""
        return status(self.process, "VmHWM")


class Analytics(Engine):
    """Shadows in a process of the example program, without node and network."""

    name = "nacre"

    def __init__(self, program, folder):
        pipe = subprocess.PIPE
        self.child = subprocess.Popen([program, "serve", folder], stdin=pipe, stdout=pipe, text=True)
        self.process = self.child.pid

    def ask(self, command):
        print(command, file=self.child.stdin, flush=True)
        answer = self.child.stdout.readline()
        if not answer:
            raise SystemExit(f"{command}: the program has ended")
        return int(answer)

    def load(self, folder):
        self.ask(f"load {folder}")

    def change(self, folder):
        self.ask(f"load {folder}")

    def run(self, number):
        return self.ask(str(number))


class DuckDb(Engine):
    """DuckDB in this process, with all tables in memory."""

    name = "DuckDB"

    def __init__(self):
        self.process = os.getpid()
        self.database = duckdb.connect()
        self.database.execute("SET threads = 1")
        self.columns = {table: {"_id": "VARCHAR", **columns} for table, columns in COLUMNS.items()}

    def load(self, folder):
        for table, columns in self.columns.items():
            self.database.execute(f"CREATE TABLE {table} AS FROM {source(folder / table, columns)}")
        self.database.execute(LINES)

    def change(self, folder):
        for table, columns in self.columns.items():
            self.database.execute(f"CREATE TEMP TABLE changes AS FROM {source(folder / table, columns)}")
            self.database.execute(f"DELETE FROM {table} WHERE _id IN (SELECT _id FROM changes)")
            # A deletion has no fields.
            self.database.execute(f"INSERT INTO {table} FROM changes WHERE {list(columns)[1]} IS NOT NULL")
            self.database.execute("DROP TABLE changes")

    def run(self, number):
        return self.database.execute((FOLDER / f"{number:02}.sql").read_text())

    def count(self, result):
        return len(result.fetchall())


def fields(document, columns):
    """Returns the fields of a jsonb value as columns of PostgreSQL, by name."""
    types = {"BIGINT": "::bigint", "DOUBLE": "::double precision", "VARCHAR": ""}
    return {name: f"({document}->>'{name}'){types[kind]}" for name, kind in columns.items() if kind in types}


class Postgres(Engine):
    """A connection to PostgreSQL, which uses one process of the server."""

    name = "PostgreSQL"

    def __init__(self, target):
        import psycopg

        self.ended = psycopg.errors.QueryCanceled
        self.database = psycopg.connect(target, autocommit=True)
        self.process = self.database.info.backend_pid
        for setting in ["max_parallel_workers_per_gather = 0", "work_mem = '256MB'", "jit = off"]:
            self.database.execute(f"SET {setting}")

    def copy(self, table, path):
        with self.database.cursor().copy(f"COPY {table} FROM STDIN (FORMAT csv, QUOTE e'\\x01', DELIMITER e'\\x02')") as copy:
            with open(f"{path}.jsonl", "rb") as file:
                while block := file.read(1 << 20):
                    copy.write(block)

    def load(self, folder):
        for table in COLUMNS:
            self.database.execute(f"CREATE TABLE {table}_documents (document jsonb)")
            self.copy(f"{table}_documents", folder / table)
            self.database.execute(f"CREATE UNIQUE INDEX ON {table}_documents ((document->>'_id'))")

    def prepare(self):
        """Creates what the queries need beyond the documents."""
        run = self.database.execute
        run("CREATE FUNCTION unicode(text) RETURNS bigint IMMUTABLE LANGUAGE sql RETURN ascii($1)")
        run("CREATE FUNCTION round(double precision, integer) RETURNS double precision IMMUTABLE LANGUAGE sql "
            "RETURN round($1::numeric, $2)::double precision")
        for table, columns in COLUMNS.items():
            own = fields("document", columns)
            for name, field in own.items():
                run(f"CREATE STATISTICS {name}_values ON ({field}) FROM {table}_documents")
            if table == "orders":
                lines = ", ".join(f"{field} AS {name}" for name, field in (own | fields("line", LINE)).items())
                run(f"CREATE VIEW lines AS SELECT {lines} FROM orders_documents, "
                    "jsonb_array_elements(document->'o_orderline') AS elements(line)")
                own["o_orderline"] = "(document->'o_orderline')"
            run(f"CREATE VIEW {table} AS SELECT {', '.join(f'{field} AS {name}' for name, field in own.items())} "
                f"FROM {table}_documents")
        run("ANALYZE")

    def change(self, folder):
        self.database.execute("CREATE TEMP TABLE changes (document jsonb)")
        for table in COLUMNS:
            self.database.execute("TRUNCATE changes")
            self.copy("changes", folder / table)
            same = "d.document->>'_id' = c.document->>'_id'"
            is_deletion = "c.document = jsonb_build_object('_id', c.document->>'_id')"
            self.database.execute(f"DELETE FROM {table}_documents d USING changes c WHERE {same} AND {is_deletion}")
            self.database.execute(f"UPDATE {table}_documents d SET document = c.document FROM changes c WHERE {same}")
        self.database.execute("ANALYZE")

    def run(self, number):
        path = FOLDER / f"{number:02}.postgres.sql"
        query = (path if path.exists() else FOLDER / f"{number:02}.sql").read_text()
        self.database.execute(f"SET statement_timeout = {LIMIT_MS}")
        try:
            return len(self.database.execute(query).fetchall())
        except self.ended:
            return None
        finally:
            self.database.execute("SET statement_timeout = 0")


class Spark(Engine):
    """A Spark in a Java process, with one thread and all tables in its cache."""

    name = "Spark"
    #: Memory of the process.
    MEMORY = "4g"

    def __init__(self):
        from pyspark.sql import SparkSession

        settings = {
            "spark.driver.memory": self.MEMORY,
            "spark.sql.session.timeZone": "UTC",
            "spark.sql.shuffle.partitions": "1",
            "spark.ui.enabled": "false",
        }
        builder = SparkSession.builder.master("local[1]").appName("ch2")
        for name, value in settings.items():
            builder = builder.config(name, value)
        self.session = builder.getOrCreate()
        self.session.sparkContext.setLogLevel("ERROR")
        # The scripts that start Java are replaced by it, so that their process is that of Java.
        self.process = self.session.sparkContext._gateway.proc.pid
        self.tables = {}

    def read(self, path, columns):
        line = ", ".join(f"{name}: {self.kind(kind)}" for name, kind in LINE.items())
        fields = {name: f"ARRAY<STRUCT<{line}>>" if kind.startswith("STRUCT") else self.kind(kind) for name, kind in columns.items()}
        schema = ", ".join(f"{name} {kind}" for name, kind in {"_id": "STRING", **fields}.items())
        return self.session.read.schema(schema).json(f"{path}.jsonl")

    def kind(self, kind):
        return "STRING" if kind == "VARCHAR" else kind

    def keep(self, table, documents):
        """Caches documents as a table, in place of an older one."""
        documents = documents.coalesce(1).cache()
        documents.count()
        documents.createOrReplaceTempView(table)
        older, self.tables[table] = self.tables.get(table), documents
        if older is not None:
            older.unpersist()

    def load(self, folder):
        for table, columns in COLUMNS.items():
            self.keep(table, self.read(folder / table, columns))
        self.prepare()

    def prepare(self):
        """Creates the view of order lines."""
        own = ", ".join(name for name in COLUMNS["orders"] if name != "o_orderline")
        lines = ", ".join(f"line.{name}" for name in LINE)
        self.session.sql(f"CREATE OR REPLACE TEMP VIEW lines AS SELECT {own}, {lines} FROM orders LATERAL VIEW explode(o_orderline) elements AS line")

    def change(self, folder):
        for table, columns in COLUMNS.items():
            changes = self.read(folder / table, columns)
            kept = self.tables[table].join(changes.select("_id"), "_id", "left_anti")
            # A deletion has no fields.
            written = changes.where(f"{list(columns)[0]} IS NOT NULL")
            self.keep(table, kept.unionByName(written))
        self.prepare()

    def run(self, number):
        path = FOLDER / f"{number:02}.spark.sql"
        query = (path if path.exists() else FOLDER / f"{number:02}.sql").read_text()
        return len(self.session.sql(query.replace("unicode(", "ascii(")).collect())


def measure(engines):
    """Returns the milliseconds of all runs by query and engine; the runs of the first two engines are paired."""
    times = {}
    for number in QUERIES:
        of = times[number] = {engine.name: [] for engine in engines}
        rows = set()
        for run in range(RUNS + 1):
            for engine in engines:
                so_far = of[engine.name]
                if so_far and so_far[0] > LONG_MS:
                    continue
                took, result = engine.timed(engine.run, number)
                count = engine.count(result)
                if run > 0 or took > LONG_MS:
                    so_far.append(took if count is not None else math.inf)
                if count is not None:
                    rows.add(count)
        if len(rows) != 1:
            raise SystemExit(f"Q{number}: {rows} rows")
        print(f"Q{number}", {name: round(statistics.median(taken), 1) for name, taken in of.items()}, file=sys.stderr)
    return times


def ratio(times, other):
    """Returns the median ratio of the paired runs; of a query that was ended, the ratio to the limit."""
    ours, theirs = times["nacre"], times[other]
    if len(ours) != len(theirs):
        return statistics.median(ours) / min(statistics.median(theirs), LIMIT_MS)
    return statistics.median(a / min(b, LIMIT_MS) for a, b in zip(ours, theirs))


def cells(times, others):
    """Returns the cells of a query in one state of the data."""
    yield f"{statistics.median(times['nacre']):.1f}"
    for name in others:
        median = statistics.median(times[name])
        yield f"> {LIMIT_MS}" if median == math.inf else f"{median:.1f}"
        yield f"{ratio(times, name):.3g}"


def row(cells):
    print("| " + " | ".join(cells) + " |")


def report(states, others):
    """Prints a table for each state of the data."""
    for state, times in states.items():
        print(f"\n{state}, in milliseconds, and the ratio of nacre to the others:\n")
        row(["query", "nacre", *(cell for name in others for cell in (name, "ratio"))])
        row(["---", "---:", *["---:", "---:"] * len(others)])
        for number in QUERIES:
            row([str(number), *cells(times[number], others)])
        means = [statistics.geometric_mean(ratio(times[number], name) for number in QUERIES) for name in others]
        row(["geometric mean", "", *(cell for mean in means for cell in ("", f"{mean:.3g}"))])


def size(folder):
    return sum(path.stat().st_size for path in folder.glob("*.jsonl")) / 1e6


def main():
    program, folder = sys.argv[1], pathlib.Path(sys.argv[2])
    peers = [Spark() if peer == "spark" else Postgres(peer) for peer in sys.argv[3:]]
    engines = [Analytics(program, folder), DuckDb(), *peers]
    loaded, changes = folder / "loaded", folder / "changes"
    ingest = {engine.name: [f"{size(loaded) / engine.timed(engine.load, loaded)[0] * 1000:.1f}"] for engine in engines}
    for engine in engines[2:]:
        engine.prepare()
    states = {"Freshly loaded": measure(engines)}
    for engine in engines:
        ingest[engine.name].append(f"{size(changes) / engine.timed(engine.change, changes)[0] * 1000:.1f}")
    states["After updates and deletions"] = measure(engines)
    report(states, [engine.name for engine in engines[1:]])
    print(f"\n{size(loaded):.0f} MB of JSON, then {size(changes):.0f} MB of changes, per second of processor time:\n")
    row(["", *ingest])
    row(["---", *["---:"] * len(engines)])
    row(["loading, MB/s", *(rates[0] for rates in ingest.values())])
    row(["changing, MB/s", *(rates[1] for rates in ingest.values())])
    row(["peak memory, MB", *(f"{engine.peak():.0f}" for engine in engines)])


if __name__ == "__main__":
    main()
