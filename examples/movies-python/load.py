"""Loads movies through the official Couchbase Python SDK, unmodified.

    python load.py --connection couchbase://127.0.0.1 --user demo --password secret1 \
        --bucket demo --collection vega.movies --from-row 1601 movies.json

Documents get the keys movie_<row>, counting rows from 1, like `nacre import --key movie_#MONO_INCR#`.
"""

import argparse
import json
from datetime import timedelta

from couchbase.auth import PasswordAuthenticator
from couchbase.cluster import Cluster
from couchbase.options import ClusterOptions


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("file", help="a JSON array of objects")
    parser.add_argument("--connection", default="couchbase://127.0.0.1")
    parser.add_argument("--user", required=True)
    parser.add_argument("--password", required=True)
    parser.add_argument("--bucket", required=True)
    parser.add_argument("--collection", required=True, help="scope.collection")
    parser.add_argument("--from-row", type=int, default=1)
    options = parser.parse_args()

    with open(options.file, encoding="utf-8") as file:
        movies = json.load(file)
    cluster = Cluster(options.connection, ClusterOptions(PasswordAuthenticator(options.user, options.password)))
    cluster.wait_until_ready(timedelta(seconds=20))
    scope, name = options.collection.split(".")
    collection = cluster.bucket(options.bucket).scope(scope).collection(name)

    batch = {f"movie_{row}": movie for row, movie in enumerate(movies, start=1) if row >= options.from_row}
    result = collection.upsert_multi(batch)
    if not result.all_ok:
        raise SystemExit(f"not all movies were written: {next(iter(result.exceptions.items()))}")
    sample = collection.get(f"movie_{len(movies)}").content_as[dict]
    assert sample == movies[-1], "what was read is not what was written"
    print(f"wrote {len(batch)} movies with the official Python SDK")


if __name__ == "__main__":
    main()
