"""A well-behaved client in a separate process: reads one document repeatedly, and reports failures and latency.

Run by the harness: `python bystander.py PORT USER PASSWORD BUCKET`. Ends when its standard input ends, and then prints one line of
JSON: `count` of reads, `failed`, `p99_ms`, and `gap_s`, the longest time without a successful read.
"""

import json
import os
import select
import sys
import time
from contextlib import suppress

from kv import SUCCESS, Connection

KEY = b"bystander"
PAUSE_S = 0.002
# This client represents one on another machine: it does not wait for a processor that the node or the attackers use.
NICENESS = -15


def main(port, user, password, bucket):
    """Reads until standard input ends."""
    with suppress(PermissionError):
        os.setpriority(os.PRIO_PROCESS, 0, NICENESS)
    latencies, failed, gap_s = [], 0, 0.0
    connection, last_success = None, time.monotonic()
    print("ready", flush=True)
    while not select.select([sys.stdin], [], [], PAUSE_S)[0]:
        begun = time.monotonic()
        try:
            if connection is None:
                connection = Connection(port, user, password, bucket, timeout=20)
            ok = connection.get(KEY).status == SUCCESS
        except OSError:
            connection, ok = None, False
        now = time.monotonic()
        gap_s = max(gap_s, now - last_success)
        if ok:
            latencies.append(now - begun)
            last_success = now
        else:
            failed += 1
    gap_s = max(gap_s, time.monotonic() - last_success)
    latencies.sort()
    p99 = latencies[len(latencies) * 99 // 100] if latencies else float("inf")
    print(json.dumps({"count": len(latencies), "failed": failed, "p99_ms": p99 * 1e3, "gap_s": gap_s}))


if __name__ == "__main__":
    main(int(sys.argv[1]), *sys.argv[2:5])
