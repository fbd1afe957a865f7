"""Backs up a bucket into object stores, and restores it from there.

The stores are moto's server for S3, in this process, fake-gcs-server for Google and Azurite for Azure. The clients of the makers see what
they hold. Usage: object_stores.py NACRE URL USER PASSWORD FAKE_GCS_SERVER AZURITE, with the bucket `default`. AZURITE is a script for Node.js.
"""

import http.client
import json
import logging
import os
import socket
import subprocess
import sys
import tempfile
import threading
import time
import urllib.parse
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import boto3
from azure.storage.blob import BlobServiceClient
from google.auth.credentials import AnonymousCredentials
from google.cloud import storage as google_storage
from moto.server import ThreadedMotoServer

BINARY, URL, USER, PASSWORD, FAKE_GCS_SERVER, AZURITE = sys.argv[1:7]
CONTAINER = "archive"
DOCUMENTS = 500
# The account that Azurite has, which its documentation names.
ACCOUNT = "devstoreaccount1"
ACCOUNT_KEY = "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw=="


class S3:
    scheme, container = "s3", "bucket"

    def __init__(self):
        self.server = ThreadedMotoServer(ip_address="127.0.0.1", port=0)
        self.server.start()
        host, port = self.server.get_host_and_port()
        endpoint = f"http://{host}:{port}"
        self.environment = {
            "AWS_ENDPOINT_URL": endpoint,
            "AWS_ACCESS_KEY_ID": "testing",
            "AWS_SECRET_ACCESS_KEY": "testing",
            "AWS_REGION": "us-east-1",
        }
        self.nowhere = {"AWS_ENDPOINT_URL": "http://127.0.0.1:1"}
        self.client = boto3.client(
            "s3", endpoint_url=endpoint, region_name="us-east-1", aws_access_key_id="testing", aws_secret_access_key="testing"
        )
        self.client.create_bucket(Bucket=CONTAINER)

    def names(self):
        pages = self.client.get_paginator("list_objects_v2").paginate(Bucket=CONTAINER)
        return sorted(entry["Key"] for page in pages for entry in page.get("Contents", []))

    def read(self, name):
        return self.client.get_object(Bucket=CONTAINER, Key=name)["Body"].read()

    def write(self, name, body):
        self.client.put_object(Bucket=CONTAINER, Key=name, Body=body)

    def stop(self):
        self.server.stop()


def free_port():
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


def answers(process, port):
    """Waits until a server listens."""
    for _ in range(600):
        assert process.poll() is None, f"the server on port {port} has ended"
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)) == 0:
                return
        time.sleep(0.1)
    raise AssertionError(f"nothing answers on port {port}")


class Writes(BaseHTTPRequestHandler):
    """Passes requests on to fake-gcs-server, which has everything of the XML API but the writing of objects: they become JSON's."""

    protocol_version = "HTTP/1.1"
    upstream = None

    def pass_on(self):
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        method, path = self.command, self.path
        headers = {name: value for name, value in self.headers.items() if name.lower() not in ["host", "connection"]}
        if method == "PUT":
            _, container, name = urllib.parse.unquote(path).split("/", 2)
            query = {"uploadType": "media", "name": name}
            if "x-goog-if-generation-match" in self.headers:
                query["ifGenerationMatch"] = self.headers["x-goog-if-generation-match"]
            method, path = "POST", f"/upload/storage/v1/b/{container}/o?{urllib.parse.urlencode(query)}"
        connection = http.client.HTTPConnection(self.upstream, timeout=60)
        connection.request(method, path, body, headers)
        answer = connection.getresponse()
        content = answer.read()
        self.send_response(answer.status)
        if self.command == "PUT" and answer.status == 200:
            stored = json.loads(content)
            self.send_header("ETag", f'"{stored["etag"]}"')
            self.send_header("x-goog-generation", stored["generation"])
        for name, value in answer.getheaders():
            if name.lower() not in ["content-length", "connection", "transfer-encoding", "date"]:
                self.send_header(name, value)
        length = answer.getheader("Content-Length") if self.command == "HEAD" else len(content)
        self.send_header("Content-Length", str(length or 0))
        self.end_headers()
        self.wfile.write(content)
        connection.close()

    do_GET = do_HEAD = do_PUT = do_DELETE = pass_on

    def log_message(self, *_):
        pass


class Google:
    scheme, container = "gs", "bucket"

    def __init__(self):
        port = free_port()
        self.process = subprocess.Popen(
            [FAKE_GCS_SERVER, "-scheme", "http", "-host", "127.0.0.1", "-port", str(port), "-backend", "memory", "-log-level", "error"]
            + ["-public-host", f"127.0.0.1:{port}"]
        )
        answers(self.process, port)
        Writes.upstream = f"127.0.0.1:{port}"
        self.front = ThreadingHTTPServer(("127.0.0.1", 0), Writes)
        threading.Thread(target=self.front.serve_forever, daemon=True).start()
        self.environment = {"STORAGE_EMULATOR_HOST": f"127.0.0.1:{self.front.server_address[1]}"}
        self.nowhere = {"STORAGE_EMULATOR_HOST": "127.0.0.1:1"}
        client = google_storage.Client(
            project="test",
            credentials=AnonymousCredentials(),
            client_options={"api_endpoint": f"http://{Writes.upstream}"},
        )
        self.bucket = client.create_bucket(CONTAINER)

    def names(self):
        return sorted(blob.name for blob in self.bucket.list_blobs())

    def read(self, name):
        return self.bucket.blob(name).download_as_bytes()

    def write(self, name, body):
        self.bucket.blob(name).upload_from_string(body)

    def stop(self):
        self.front.shutdown()
        self.process.terminate()
        self.process.wait()


class Azure:
    scheme, container = "az", "container"

    def __init__(self):
        port = free_port()
        self.process = subprocess.Popen(
            ["node", AZURITE, "--silent", "--inMemoryPersistence", "--skipApiVersionCheck", "--blobHost", "127.0.0.1", "--blobPort", str(port)]
        )
        answers(self.process, port)

        def connection(port):
            endpoint = f"http://127.0.0.1:{port}/{ACCOUNT}"
            return f"DefaultEndpointsProtocol=http;AccountName={ACCOUNT};AccountKey={ACCOUNT_KEY};BlobEndpoint={endpoint};"

        self.environment = {"AZURE_STORAGE_CONNECTION_STRING": connection(port)}
        self.nowhere = {"AZURE_STORAGE_CONNECTION_STRING": connection(1)}
        service = BlobServiceClient.from_connection_string(connection(port))
        self.client = service.create_container(CONTAINER)

    def names(self):
        return sorted(self.client.list_blob_names())

    def read(self, name):
        return self.client.download_blob(name).readall()

    def write(self, name, body):
        self.client.upload_blob(name, body, overwrite=True)

    def stop(self):
        # It would wait for connections that clients keep open.
        self.process.kill()
        self.process.wait()


def nacre(*arguments, environment=None, stdin=None):
    """Runs a command of the binary; returns its exit code and all that it has printed."""
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


def back_up(store):
    os.environ.update(store.environment)
    repository = f"{store.scheme}://{CONTAINER}/nacre/daily"
    missing = f"{store.scheme}://missing/nacre"
    copy = f"copy-{store.scheme}"
    # An object whose name begins like the repository's does not belong to it.
    store.write("nacre/daily-report.txt", b"not a backup")

    succeed("import", "json", "-", "--bucket", "default", "--key", "%id%", stdin=lines("first"))
    code, said = nacre("backup", "list", repository)
    assert code != 0 and "there is no repository" in said, said
    # The store and a folder pass the same checks, of which nothing is left.
    empty = store.names()
    with tempfile.TemporaryDirectory() as folder:
        for place in [repository, folder]:
            said = succeed("backup", "check", place)
            assert f"{place} can have backups" in said, said
    assert store.names() == empty, store.names()
    said = succeed("backup", "create", repository, "--bucket", "default", "--quiet")
    assert f"full: {DOCUMENTS} documents" in said, said
    before = store.names()
    assert "nacre/daily/nacre-backup.json" in before, before
    assert sum(name.endswith("manifest.json") for name in before) == 1, before

    succeed("import", "json", "-", "--bucket", "default", "--key", "%id%", stdin=lines("second"))
    said = succeed("backup", "create", repository, "--bucket", "default", "--quiet")
    assert f"an increment: {DOCUMENTS} documents" in said, said
    assert set(before) <= set(store.names()), "an object of the first backup is gone"
    said = succeed("backup", "verify", repository, "--read-data", "--restore-sample", "20")
    assert "restored 20 documents" in said, said
    listed = json.loads(succeed("backup", "list", repository, "--output", "json"))
    assert len(listed) == 2, listed

    succeed("bucket", "create", copy, "--ram-mb", "100")
    said = succeed("restore", repository, "--bucket", "default", "--mapping", f"default={copy}", "--quiet")
    said = succeed("backup", "diff", repository, "--bucket", "default", "--with", copy)
    assert f"{DOCUMENTS} documents the same, 0 different" in said, said
    succeed("bucket", "rm", copy, "--yes")

    # Verification names an object that the store has damaged.
    victim = next(name for name in store.names() if name.endswith(".nbk"))
    body = bytearray(store.read(victim))
    body[len(body) // 2] ^= 1
    store.write(victim, bytes(body))
    code, said = nacre("backup", "verify", repository, "--read-data")
    assert code != 0 and victim.removeprefix("nacre/daily/") in said, said

    # Addresses that lead nowhere are errors that name them.
    code, said = nacre("backup", "list", missing)
    assert code != 0 and missing in said, said
    code, said = nacre("backup", "create", missing, "--bucket", "default", "--quiet")
    assert code != 0 and f"there is no {store.container} missing" in said, said
    code, said = nacre("backup", "list", f"{store.scheme}:///nacre")
    assert code != 0 and f"name a {store.container}" in said, said
    code, said = nacre("backup", "list", repository, environment=store.nowhere)
    assert code != 0 and repository in said, said

    assert not any("/locks/" in name for name in store.names()), store.names()
    succeed("backup", "remove", repository, max(backup["id"] for backup in listed))
    assert len(json.loads(succeed("backup", "list", repository, "--output", "json"))) == 1
    assert store.read("nacre/daily-report.txt") == b"not a backup"
    print(f"{DOCUMENTS} documents backed up to {repository} and restored")


def main():
    logging.getLogger("werkzeug").setLevel(logging.ERROR)
    os.environ.update(NACRE_SERVER=URL, NACRE_USER=USER, NACRE_PASSWORD=PASSWORD)
    for start in [S3, Google, Azure]:
        store = start()
        try:
            back_up(store)
        finally:
            store.stop()


main()
