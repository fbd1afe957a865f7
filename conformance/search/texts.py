"""Indexes and searches texts, in SQLite with FTS5, in PostgreSQL with a column of type tsvector, or with tantivy itself.

    python3 texts.py sqlite|postgres|tantivy TARGET DOCUMENTS QUERIES

TARGET is a file for SQLite, a connection string for PostgreSQL, and an empty folder for tantivy. DOCUMENTS has a JSON document per line, QUERIES is an object:
lists of lists of words by kind of query. Prints a JSON object: ``index_cpu_s``, ``bytes``, and ``cpu_us`` of a query by kind. A
query returns the ten best documents, without their count.
"""

import json
import pathlib
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


class Tantivy:
    """tantivy in this process, compiled for it: the library on which the search of nacre is built."""

    def __init__(self, target):
        import tantivy

        self.tantivy = tantivy
        self.folder = pathlib.Path(target)
        fields = tantivy.SchemaBuilder()
        for name in ("title", "body"):
            fields.add_text_field(name, stored=True, tokenizer_name="words", index_option="position")
        self.schema = fields.build()
        self.index_ = tantivy.Index(self.schema, path=str(self.folder))
        words = tantivy.TextAnalyzerBuilder(tantivy.Tokenizer.simple()).filter(tantivy.Filter.lowercase())
        self.index_.register_tokenizer("words", words.build())
        self.searcher = None

    def cpu(self):
        """Returns nanoseconds of processor time of all threads."""
        return time.process_time_ns()

    def index(self, documents):
        """Creates the index of the documents, with one thread and all merges; returns its bytes."""
        writer = self.index_.writer(heap_size=128_000_000, num_threads=1)
        for document in documents:
            writer.add_document(self.tantivy.Document(title=document["title"], body=document["body"]))
        writer.commit()
        writer.wait_merging_threads()
        self.index_.reload()
        self.searcher = self.index_.searcher()
        return sum(file.stat().st_size for file in self.folder.iterdir() if file.is_file())

    def query(self, kind, words):
        """Returns a query."""
        query = self.tantivy.Query
        terms = [query.term_query(self.schema, "body", word) for word in words]
        if kind == "phrase of 2":
            return query.phrase_query(self.schema, "body", list(words))
        if kind == "prefix":
            return query.regex_query(self.schema, "body", words[0] + ".*")
        if len(terms) == 1:
            return terms[0]
        occur = self.tantivy.Occur.Must if kind == "and of 2" else self.tantivy.Occur.Should
        return query.boolean_query([(occur, term) for term in terms])

    def ask(self, kind, words):
        """Returns the best documents."""
        query = self.query(kind, words)
        hits = self.searcher.search(query, limit=10, count=False).hits
        if kind != "or, highlighted":
            return hits
        snippets = self.tantivy.SnippetGenerator.create(self.searcher, query, self.schema, "body")
        return [snippets.snippet_from_doc(self.searcher.doc(address)).to_html() for _, address in hits]


def main():
    """Measures an engine."""
    engine, target, documents, queries = sys.argv[1:]
    engine = {"sqlite": Sqlite, "postgres": Postgres, "tantivy": Tantivy}[engine](target)
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
