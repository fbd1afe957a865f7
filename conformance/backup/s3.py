"""Backs up a bucket into an S3-compatible store and restores it from there.

The store is moto's server in this process; boto3 lists its objects. Usage: s3.py NACRE URL USER PASSWORD, with the bucket
`default`.
"""

import json
import logging
import os
import subprocess
import sys
import tempfile

import boto3
from moto.server import ThreadedMotoServer

BINARY, URL, USER, PASSWORD = sys.argv[1:5]
BUCKET = "archive"
REPOSITORY = f"s3://{BUCKET}/nacre/daily"
DOCUMENTS = 500


def nacre(*arguments, environment=None, stdin=None):
    """Runs a command of the binary; returns its exit code and its complete output."""
    done = subprocess.run(
        [BINARY, *arguments],
        env={**os.environ, **(environment or {})},
        input=stdin,
        text=True,
        capture_output=True,
        timeout=300,
    )
    return done.returncode, done.stdout + done.stderr


def succeed(*arguments, **options):
    code, said = nacre(*arguments, **options)
    assert code == 0, f"{arguments}: {said}"
    return said


def lines(marker):
    return "".join(json.dumps({"id": f"key-{n}", "n": n, "marker": marker}) + "\n" for n in range(DOCUMENTS))


def names(client):
    pages = client.get_paginator("list_objects_v2").paginate(Bucket=BUCKET)
    return sorted(entry["Key"] for page in pages for entry in page.get("Contents", []))


def main():
    logging.getLogger("werkzeug").setLevel(logging.ERROR)
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0)
    server.start()
    host, port = server.get_host_and_port()
    endpoint = f"http://{host}:{port}"
    os.environ.update(
        AWS_ENDPOINT_URL=endpoint,
        AWS_ACCESS_KEY_ID="testing",
        AWS_SECRET_ACCESS_KEY="testing",
        AWS_REGION="us-east-1",
        AWS_DEFAULT_REGION="us-east-1",
        NACRE_SERVER=URL,
        NACRE_USER=USER,
        NACRE_PASSWORD=PASSWORD,
    )
    client = boto3.client("s3", endpoint_url=endpoint)
    client.create_bucket(Bucket=BUCKET)
    # An object whose name begins like the repository's, but which does not belong to it.
    client.put_object(Bucket=BUCKET, Key="nacre/daily-report.txt", Body=b"not a backup")

    succeed("import", "json", "-", "--bucket", "default", "--key", "%id%", stdin=lines("first"))
    code, said = nacre("backup", "list", REPOSITORY)
    assert code != 0 and "there is no repository" in said, said
    # The store and a folder pass the same checks, which leave no objects behind.
    empty = names(client)
    with tempfile.TemporaryDirectory() as folder:
        for place in [REPOSITORY, folder]:
            said = succeed("backup", "check", place)
            assert f"{place} can have backups" in said, said
    assert names(client) == empty, names(client)
    said = succeed("backup", "create", REPOSITORY, "--bucket", "default", "--quiet")
    assert f"full: {DOCUMENTS} documents" in said, said
    before = names(client)
    assert "nacre/daily/nacre-backup.json" in before, before
    assert sum(name.endswith("manifest.json") for name in before) == 1, before

    succeed("import", "json", "-", "--bucket", "default", "--key", "%id%", stdin=lines("second"))
    said = succeed("backup", "create", REPOSITORY, "--bucket", "default", "--quiet")
    assert f"an increment: {DOCUMENTS} documents" in said, said
    assert set(before) <= set(names(client)), "an object of the first backup is gone"
    said = succeed("backup", "verify", REPOSITORY, "--read-data")
    assert "damage" not in said.lower(), said
    listed = json.loads(succeed("backup", "list", REPOSITORY, "--output", "json"))
    assert len(listed) == 2, listed

    succeed("bucket", "create", "copy", "--ram-mb", "100")
    said = succeed("restore", REPOSITORY, "--bucket", "default", "--mapping", "default=copy", "--quiet")
    said = succeed("backup", "diff", REPOSITORY, "--bucket", "default", "--with", "copy")
    assert f"{DOCUMENTS} documents the same, 0 different" in said, said

    # Verification names the object that is damaged in the store.
    victim = next(name for name in names(client) if name.endswith(".nbk"))
    body = bytearray(client.get_object(Bucket=BUCKET, Key=victim)["Body"].read())
    body[len(body) // 2] ^= 1
    client.put_object(Bucket=BUCKET, Key=victim, Body=bytes(body))
    code, said = nacre("backup", "verify", REPOSITORY, "--read-data")
    assert code != 0 and victim.removeprefix("nacre/daily/") in said, said

    # Invalid addresses cause errors that name them.
    code, said = nacre("backup", "list", "s3://missing/nacre")
    assert code != 0 and "s3://missing/nacre" in said, said
    code, said = nacre("backup", "create", "s3://missing/nacre", "--bucket", "default", "--quiet")
    assert code != 0 and "there is no bucket missing" in said, said
    code, said = nacre("backup", "list", "s3:///nacre")
    assert code != 0 and "name a bucket" in said, said
    code, said = nacre("backup", "list", REPOSITORY, environment={"AWS_ENDPOINT_URL": "http://127.0.0.1:1"})
    assert code != 0 and REPOSITORY in said, said

    assert not any("/locks/" in name for name in names(client)), names(client)
    listed = [backup["id"] for backup in listed]
    succeed("backup", "remove", REPOSITORY, max(listed))
    assert len(json.loads(succeed("backup", "list", REPOSITORY, "--output", "json"))) == 1
    assert client.get_object(Bucket=BUCKET, Key="nacre/daily-report.txt")["Body"].read() == b"not a backup"
    server.stop()
    print(f"{DOCUMENTS} documents backed up to {REPOSITORY} and restored")


main()
