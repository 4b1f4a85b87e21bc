"""Runs in a pod: measures since when the API server is reachable again from inside the cluster after an outage.

The address of its Service works later than the API server itself, because each node's proxy must update first. Port
8001 answers GET /reached with {"lost": true once a connection failed, "back_seconds": seconds since the first
successful one after that, or null}.
"""

import json
import os
import socket
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

PORT = 8001
PAUSE = 0.5  # seconds between two attempts


class Reach:
    """The results of the attempts so far."""

    def __init__(self) -> None:
        self.lost = False
        self.back: float | None = None

    def look(self) -> None:
        """Try to connect in an endless loop."""
        where = (os.environ["KUBERNETES_SERVICE_HOST"], int(os.environ["KUBERNETES_SERVICE_PORT"]))
        while True:
            try:
                socket.create_connection(where, timeout=2).close()
            except OSError:
                self.lost, self.back = True, None
            else:
                if self.lost and self.back is None:
                    self.back = time.monotonic()
            time.sleep(PAUSE)

    def told(self) -> bytes:
        """The response body."""
        since = None if self.back is None else time.monotonic() - self.back
        return json.dumps({"lost": self.lost, "back_seconds": since}).encode()


def main() -> None:
    """Serve until the pod ends."""
    reach = Reach()
    threading.Thread(target=reach.look, daemon=True).start()

    class Answer(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            body = reach.told()
            self.send_response(200)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

    ThreadingHTTPServer(("0.0.0.0", PORT), Answer).serve_forever()


if __name__ == "__main__":
    main()
