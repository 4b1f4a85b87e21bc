"""Runs in a pod: lists large objects by many connections at once, as a broken controller does to an API server.

Usage: flood.py PATH CONNECTIONS

It measures lists one after the other first, then floods until the file STOP exists. The last line is JSON: {answered,
failed, alone_seconds, median_seconds, slowest_seconds, seconds}; failed: responses 429.
"""

import http.client
import json
import os
import ssl
import statistics
import sys
import threading
import time
from http import HTTPStatus
from pathlib import Path

STOP = Path("/tmp/stop")
ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")
ALONE = 5  # lists before the flood
PATIENCE = 60.0  # seconds for one answer


class Flood:
    """The answers to all connections."""

    def __init__(self, path: str) -> None:
        self.path = path
        self.took: list[float] = []
        self.refused = 0
        self._trust = ssl.create_default_context(cafile=str(ACCOUNT / "ca.crt"))

    def send(self) -> None:
        """List until STOP exists."""
        while not STOP.exists():
            connection = self._connect()
            try:
                while not STOP.exists():
                    self.list_once(connection)
            except (OSError, http.client.HTTPException):
                time.sleep(0.1)
            finally:
                connection.close()

    def list_once(self, connection: http.client.HTTPSConnection) -> None:
        """One list. Raises OSError and HTTPException."""
        began = time.monotonic()
        headers = {"Authorization": f"Bearer {(ACCOUNT / 'token').read_text()}"}
        connection.request("GET", self.path, headers=headers)
        answer = connection.getresponse()
        answer.read()
        if answer.status == HTTPStatus.OK:
            self.took.append(time.monotonic() - began)
        elif answer.status == HTTPStatus.TOO_MANY_REQUESTS:
            self.refused += 1
        else:
            sys.exit(f"{self.path}: {answer.status}")

    def alone(self) -> float:
        """The median of lists without others at the same time."""
        connection = self._connect()
        for _ in range(ALONE):
            self.list_once(connection)
        connection.close()
        alone, self.took = statistics.median(self.took), []
        return alone

    def _connect(self) -> http.client.HTTPSConnection:
        where = (os.environ["KUBERNETES_SERVICE_HOST"], int(os.environ["KUBERNETES_SERVICE_PORT"]))
        return http.client.HTTPSConnection(*where, timeout=PATIENCE, context=self._trust)


def main(path: str, connections: str) -> None:
    """Flood, and print the account."""
    flood = Flood(path)
    alone, began = flood.alone(), time.monotonic()
    threads = [threading.Thread(target=flood.send) for _ in range(int(connections))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    account = {
        "answered": len(flood.took),
        "failed": flood.refused,
        "alone_seconds": round(alone, 3),
        "median_seconds": round(statistics.median(flood.took), 3),
        "slowest_seconds": round(max(flood.took), 1),
        "seconds": round(time.monotonic() - began, 1),
    }
    print(json.dumps(account))


if __name__ == "__main__":
    main(*sys.argv[1:])
