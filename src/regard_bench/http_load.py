"""Clients of an HTTP server, in a separate process: each sends its next request when the last one is answered.

    python -m regard_bench.http_load < plan.json > figures.json

The plan holds the address, the number of clients, the seconds during which they send, and the bodies, which they take
in turn. This module imports only Python's standard library, so that it starts at once and uses little processor time.
"""

import http.client
import itertools
import json
import sys
import threading
import time
from typing import Any
from urllib.parse import urlsplit


def drive(plan: dict[str, Any]) -> dict[str, Any]:
    """Send requests by a plan; return the seconds of each that ended in time, the statuses, and some answers."""
    address = urlsplit(plan["address"])
    bodies = itertools.cycle([json.dumps(body).encode() for body in plan["bodies"]])
    lock, begin = threading.Lock(), threading.Barrier(plan["clients"] + 1)
    seconds: list[float] = []
    statuses: dict[str, int] = {}
    answers: list[Any] = []
    end = float("inf")

    def client() -> None:
        connection = http.client.HTTPConnection(address.hostname or "127.0.0.1", address.port, timeout=120)
        connection.connect()
        begin.wait()
        while time.perf_counter() < end:
            with lock:
                body = next(bodies)
            start = time.perf_counter()
            connection.request("POST", plan["path"], body, {"Content-Type": "application/json"})
            response = connection.getresponse()
            content = response.read()
            now = time.perf_counter()
            with lock:
                statuses[str(response.status)] = statuses.get(str(response.status), 0) + 1
                if now <= end and response.status == 200:
                    seconds.append(now - start)
                    if len(answers) < plan.get("keep", 0):
                        answers.append([json.loads(body), json.loads(content)])
        connection.close()

    threads = [threading.Thread(target=client, daemon=True) for _ in range(plan["clients"])]
    for thread in threads:
        thread.start()
    begin.wait()
    start = time.perf_counter()
    end = start + plan["seconds"]
    for thread in threads:
        thread.join()
    return {"seconds": seconds, "statuses": statuses, "elapsed": plan["seconds"], "answers": answers}


if __name__ == "__main__":
    json.dump(drive(json.load(sys.stdin)), sys.stdout)
