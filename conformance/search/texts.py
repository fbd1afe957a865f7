"""Indexes and searches texts, in SQLite with FTS5 or in PostgreSQL with a column of type tsvector.

    python3 texts.py sqlite|postgres TARGET DOCUMENTS QUERIES

TARGET is a file for SQLite and a connection string for PostgreSQL. DOCUMENTS has a JSON document per line, QUERIES is an object:
lists of lists of words by kind of query. Prints a JSON object: ``index_cpu_s``, ``bytes``, and ``cpu_us`` of a query by kind. A
query returns the ten best documents, without their count.
"""

import json
import sqlite3
import sys
import time

KINDS = ("term, common", "term, rare", "and of 2", "or of 3", "phrase of 2", "prefix", "or, highlighted")


def quoted(word):
    """Returns a word in FTS5's syntax."""
    return '"' + word.replace('"', '""') + '"'


class Sqlite:
    """SQLite in this process."""

    def __init__(self, target):
        self.db = sqlite3.connect(target)

    def cpu(self):
        """Returns nanoseconds of processor time."""
        return time.process_time_ns()

    def index(self, documents):
        """Creates the index of the documents; returns its bytes."""
        self.db.execute("CREATE VIRTUAL TABLE docs USING fts5(title, body)")
        rows = ((document["title"], document["body"]) for document in documents)
        self.db.executemany("INSERT INTO docs VALUES (?, ?)", rows)
        self.db.commit()
        self.db.execute("INSERT INTO docs(docs) VALUES ('optimize')")
        self.db.commit()
        (pages,), (size,) = (self.db.execute(f"PRAGMA {name}").fetchone() for name in ("page_count", "page_size"))
        return pages * size

    def ask(self, kind, words):
        """Returns the best documents."""
        words = [quoted(word) for word in words]
        match = {
            "and of 2": " AND ".join(words),
            "or of 3": " OR ".join(words),
            "or, highlighted": " OR ".join(words),
            "phrase of 2": " + ".join(words),
            "prefix": words[0] + " *",
        }.get(kind, words[0])
        shown = "snippet(docs, 1, '<mark>', '</mark>', '…', 30)" if kind == "or, highlighted" else "rank"
        sql = f"SELECT rowid, {shown} FROM docs WHERE docs MATCH ? ORDER BY rank LIMIT 10"
        return self.db.execute(sql, (f"body : ({match})" if kind != "phrase of 2" else f"body : {match}",)).fetchall()


class Postgres:
    """A connection to PostgreSQL, which uses one process of the server."""

    def __init__(self, target):
        import psycopg

        self.db = psycopg.connect(target, autocommit=True)
        (process,) = self.db.execute("SELECT pg_backend_pid()").fetchone()
        # The clock ID of another process, computed as in clock_getcpuclockid.
        self.clock = ~process << 3 | 2
        self.db.execute("SET max_parallel_workers_per_gather = 0")
        self.db.execute("SET max_parallel_maintenance_workers = 0")

    def cpu(self):
        """Returns the nanoseconds of processor time of the server process of this connection."""
        return time.clock_gettime_ns(self.clock)

    def index(self, documents):
        """Creates the table and index of the documents; returns their bytes."""
        self.db.execute("CREATE TABLE docs (id serial PRIMARY KEY, title text, body text, words tsvector)")
        with self.db.cursor().copy("COPY docs (title, body) FROM STDIN") as copy:
            for document in documents:
                copy.write_row((document["title"], document["body"].replace("\0", " ")))
        self.db.execute("UPDATE docs SET words = to_tsvector('simple', body)")
        self.db.execute("CREATE INDEX by_words ON docs USING gin (words)")
        self.db.execute("VACUUM FULL ANALYZE docs")
        return self.db.execute("SELECT pg_total_relation_size('docs')").fetchone()[0]

    def ask(self, kind, words):
        """Returns the best documents."""
        words = ["'" + word.replace("'", "''") + "'" for word in words]
        query = {
            "and of 2": " & ".join(words),
            "or of 3": " | ".join(words),
            "or, highlighted": " | ".join(words),
            "phrase of 2": " <-> ".join(words),
            "prefix": words[0] + ":*",
        }.get(kind, words[0])
        best = "SELECT id, body, ts_rank(words, q) AS rank FROM docs, to_tsquery('simple', %s) q WHERE words @@ q ORDER BY rank DESC LIMIT 10"
        if kind != "or, highlighted":
            return self.db.execute(best.replace("body, ", ""), (query,)).fetchall()
        sql = f"SELECT id, ts_headline('simple', body, to_tsquery('simple', %s)) FROM ({best}) best"
        return self.db.execute(sql, (query, query)).fetchall()


def main():
    """Measures an engine."""
    engine, target, documents, queries = sys.argv[1:]
    engine = {"sqlite": Sqlite, "postgres": Postgres}[engine](target)
    with open(documents, encoding="utf-8") as lines:
        documents = [json.loads(line) for line in lines]
    with open(queries, encoding="utf-8") as file:
        queries = json.load(file)
    begun = engine.cpu()
    size = engine.index(documents)
    figures = {"index_cpu_s": (engine.cpu() - begun) / 1e9, "bytes": size, "cpu_us": {}}
    for kind in KINDS:
        asked = queries[kind]
        hits = sum(len(engine.ask(kind, words)) for words in asked)
        begun = engine.cpu()
        for _ in range(3):
            for words in asked:
                engine.ask(kind, words)
        if not hits:
            raise SystemExit(f"{kind}: no query finds anything")
        figures["cpu_us"][kind] = (engine.cpu() - begun) / 1e3 / (3 * len(asked))
    print(json.dumps(figures))


main()
