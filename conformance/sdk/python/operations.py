"""Plays every operation of the official Python SDK that the server offers against a running server.

The SDK is based on the C++ core, which parses replies differently from the Go and Rust cores, so that it finds errors
that those miss. Needs `pip install couchbase==4.6.3` and a bucket; documents, scopes, users, buckets and design
documents are named after the run and removed afterwards.

    python operations.py --user Administrator --password password --bucket default

Prints a line for each failed operation, then `N passed, M failed`; the exit code is 1 if any failed.
"""

import argparse
import sys
import traceback
import uuid
from datetime import timedelta
from functools import partial

from couchbase.auth import PasswordAuthenticator
from couchbase.cluster import Cluster
from couchbase.exceptions import CouchbaseException
from couchbase.options import ClusterOptions, ClusterTimeoutOptions, WaitUntilReadyOptions

import documents
import eventing
import management
import queries
import scans
import search
import subdocuments
import transactions
import views
from support import Environment, cases


def arguments():
    """Returns the options of the command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--host", default="127.0.0.1", help="name or address of the server")
    parser.add_argument("--connection-string", help="instead of --host, for other ports or several hosts")
    parser.add_argument("--certificate", help="file of the authority that signed the server's certificate, for couchbases://")
    parser.add_argument("--user", default="Administrator")
    parser.add_argument("--password", default="password")
    parser.add_argument("--bucket", default="default", help="a bucket that exists")
    parser.add_argument("--filter", default="", help="play only the operations whose name contains this")
    parser.add_argument("--table", action="store_true", help="print a line for what passes, too")
    options = parser.parse_args()
    options.connection_string = options.connection_string or f"couchbase://{options.host}"
    return options


def connect(options, user, password):
    """Returns a cluster that answers; its timeouts are short because the server is near."""
    timeouts = ClusterTimeoutOptions(
        kv_timeout=timedelta(seconds=5),
        management_timeout=timedelta(seconds=20),
        views_timeout=timedelta(seconds=30),
        search_timeout=timedelta(seconds=30),
    )
    authenticator = PasswordAuthenticator(user, password, cert_path=options.certificate)
    cluster = Cluster(options.connection_string, ClusterOptions(authenticator, timeout_options=timeouts))
    cluster.wait_until_ready(timedelta(seconds=20), WaitUntilReadyOptions())
    return cluster


def main():
    """Runs the cases; returns the exit code."""
    options = arguments()
    try:
        cluster = connect(options, options.user, options.password)
    except CouchbaseException as error:
        print(f"cannot reach the server: {error}", file=sys.stderr)
        return 1
    log_in = partial(connect, options)
    environment = Environment(cluster, log_in, options.bucket, f"op-{uuid.uuid4().hex[:8]}")
    passed = failed = 0
    modules = documents, subdocuments, scans, transactions, management, views, queries, search, eventing
    for case in cases(*modules):
        name = f"{case.__module__}/{case.__name__}"
        if options.filter not in name:
            continue
        try:
            case(environment)
            passed += 1
            if options.table:
                print(f"ok   {name}")
        except Exception as error:  # A failed operation may raise anything; the next one still runs.
            failed += 1
            place = traceback.extract_tb(error.__traceback__)
            line = next((frame for frame in reversed(place) if "couchbase" not in frame.filename), place[-1])
            print(f"FAIL {name}: line {line.lineno} ({line.line}): {type(error).__name__} {error}")
    environment.clean()
    cluster.close()
    print(f"{passed} passed, {failed} failed")
    return 0 if passed and not failed else 1


if __name__ == "__main__":
    sys.exit(main())
