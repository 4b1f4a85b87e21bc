"""Runs in a pod as a Hugging Face hub: one model, at a port for each fault. Beside it is tests/hub_server.py.

Usage: hub.py FOLDER, with the model's files
"""

import sys
import threading
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Final

from tests.hub_server import HubServer

TOKEN: Final = "hf-token-of-the-e2e"
PRIVATE, GATED, LARGE = 9101, 9102, 9103
FAULTS: Final[dict[int, dict[str, Any]]] = {
    PRIVATE: {"token": TOKEN},
    GATED: {"refusal": (403, {"X-Error-Code": "GatedRepo"})},
    LARGE: {"claimed_size": 4 * 2**30},
}


def main() -> None:
    """Serve until the process is killed."""
    files = {path.name: path.read_bytes() for path in Path(sys.argv[1]).iterdir() if path.is_file()}
    with ExitStack() as stack:
        for port, faults in FAULTS.items():
            hub = stack.enter_context(HubServer(files, ("0.0.0.0", port)))
            for name, value in faults.items():
                setattr(hub, name, value)
        threading.Event().wait()


if __name__ == "__main__":
    main()
