"""A client of the key-value port for attacks: it sends any bytes, valid or not."""

import socket
import ssl
import struct
import zlib
from typing import NamedTuple

HEADER = struct.Struct(">BBHBBHIIQ")
REQUEST, RESPONSE = 0x80, 0x81

GET, SET, ADD, DELETE, NOOP, VERSION, STAT = 0x00, 0x01, 0x02, 0x04, 0x0A, 0x0B, 0x10
HELLO, SASL_AUTH, SASL_STEP, SELECT_BUCKET = 0x1F, 0x21, 0x22, 0x89
GET_MANIFEST, GET_COLLECTION_ID, DCP_OPEN = 0xBA, 0xBB, 0x50

SUCCESS, NOT_FOUND, AUTH_ERROR, TEMPORARY_FAILURE = 0x00, 0x01, 0x20, 0x86
ACCESS_DENIED, AUTH_STALE, AUTH_CONTINUE = 0x24, 0x1F, 0x21

FEATURES = {"xerror": 0x07, "collections": 0x12, "json": 0x0B, "xattr": 0x06, "seqno": 0x04}


class Reply(NamedTuple):
    """One response: status, extras, key, value, CAS and the opaque of its request."""

    status: int
    extras: bytes
    key: bytes
    value: bytes
    cas: int
    opaque: int


def frame(opcode, key=b"", value=b"", extras=b"", *, vbucket=0, cas=0, opaque=0, datatype=0):
    """Returns the bytes of one request."""
    body_bytes = len(extras) + len(key) + len(value)
    head = HEADER.pack(REQUEST, opcode, len(key), len(extras), datatype, vbucket, body_bytes, opaque, cas)
    return head + extras + key + value


def vbucket_of(key, count=1024):
    """Returns the number of the vBucket that a document key belongs to."""
    return (zlib.crc32(key) >> 16 & 0x7FFF) % count


class Connection:
    """A connection to the key-value port, without a login unless `user` is given.

    `source` is the loopback address to connect from, so that a case can simulate several hosts. Raises `OSError` when
    the server refuses or closes the connection.
    """

    def __init__(self, port, user=None, password="password", bucket=None, *, source="127.0.0.1", tls=False, timeout=10.0):
        self.socket = socket.create_connection(("127.0.0.1", port), timeout, source_address=(source, 0))
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if tls:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
            context.check_hostname = False
            context.verify_mode = ssl.CERT_NONE
            self.socket = context.wrap_socket(self.socket)
        self.pending = b""
        if user is not None:
            reply = self.login(user, password)
            if reply.status != SUCCESS:
                raise PermissionError(f"login of {user}: status {reply.status:#x}")
            if bucket is not None:
                reply = self.request(SELECT_BUCKET, bucket.encode())
                if reply.status != SUCCESS:
                    raise PermissionError(f"bucket {bucket}: status {reply.status:#x}")

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def close(self):
        """Closes the connection."""
        self.socket.close()

    def send(self, data):
        """Sends bytes unchanged."""
        self.socket.sendall(data)

    def receive(self):
        """Waits for the next response; raises `ConnectionError` at the end of the connection."""
        head = self._exactly(HEADER.size)
        magic, _, key_bytes, extras_bytes, _, status, body_bytes, opaque, cas = HEADER.unpack(head)
        if magic == 0x18:
            key_bytes, frames_bytes = key_bytes & 0xFF, key_bytes >> 8
        else:
            frames_bytes = 0
        body = self._exactly(body_bytes)[frames_bytes:]
        extras, rest = body[:extras_bytes], body[extras_bytes:]
        return Reply(status, extras, rest[:key_bytes], rest[key_bytes:], cas, opaque)

    def request(self, opcode, key=b"", value=b"", extras=b"", **fields):
        """Sends one request and waits for its response."""
        self.send(frame(opcode, key, value, extras, **fields))
        return self.receive()

    def login(self, user, password):
        """Logs in with SASL PLAIN; returns the response."""
        return self.request(SASL_AUTH, b"PLAIN", b"\0" + user.encode() + b"\0" + password.encode())

    def hello(self, *features):
        """Negotiates features by name (see `FEATURES`)."""
        codes = b"".join(struct.pack(">H", FEATURES[name]) for name in features)
        return self.request(HELLO, b"attack", codes)

    def get(self, key):
        """Reads a document of the default collection."""
        return self.request(GET, key, vbucket=vbucket_of(key))

    def set(self, key, value, **fields):
        """Writes a document into the default collection."""
        return self.request(SET, key, value, bytes(8), vbucket=vbucket_of(key), **fields)

    def delete(self, key):
        """Deletes a document of the default collection."""
        return self.request(DELETE, key, vbucket=vbucket_of(key))

    def is_closed(self, within=5.0):
        """Returns True if the server closes the connection within the given seconds; drops earlier responses."""
        self.socket.settimeout(within)
        try:
            while self.socket.recv(65536):
                pass
            return True
        except TimeoutError:
            return False
        except OSError:
            return True

    def _exactly(self, count):
        while len(self.pending) < count:
            chunk = self.socket.recv(max(65536, count - len(self.pending)))
            if not chunk:
                raise ConnectionError("the server closed the connection")
            self.pending += chunk
        taken, self.pending = self.pending[:count], self.pending[count:]
        return taken
