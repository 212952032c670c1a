"""Clients of an HTTP server, in a process of their own: each sends the next request when its last was answered.

    python -m regard_bench.http_load < plan.json > figures.json

The plan names the address, how many clients there are and for how many seconds they send, and the bodies, which they
take in turn. It imports nothing but Python's own library, so that it starts at once and takes little of the machine.
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
    """Send requests as a plan says; the seconds of each that ended within its time, and what was answered."""
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
