"""Runs in an engine's pod, beside its processes, and needs no API server: rounds of churn, and the sizes after each round.

Usage: soak.py SECONDS WORKERS. The churn is that of `make soak`, with fewer workers. The last line is JSON: {samples,
statuses, seconds}; tests/soak/flatness.py judges the samples.
"""

import json
import sys
import time
import urllib.request
from pathlib import Path
from typing import Any, Final

from tests.soak.rounds import BETWEEN, churned, least

URL: Final = "http://127.0.0.1:8000"
STATE: Final = "http://127.0.0.1:8001/state"
ENGINE: Final = b"sluice_engine.core.process"  # in the command line of the engine process
ROUNDS: Final = 24  # that the time is for
REST_SECONDS: Final = 120.0  # within which the engine comes to rest


def main() -> None:
    """Make the rounds and print the account."""
    seconds, workers = float(sys.argv[1]), int(sys.argv[2])
    began = time.monotonic()
    samples, statuses = churned(URL, workers, seconds, ROUNDS, at_rest, say)
    account = {"samples": samples, "statuses": statuses, "seconds": round(time.monotonic() - began, 1)}
    print(json.dumps(account), flush=True)


def say(line: str) -> None:
    """Print a line at once."""
    print(line, end="", flush=True)


def at_rest() -> dict[str, int]:
    """The sizes of the processes when nothing runs. Raises TimeoutError if the engine does not come to rest."""
    ends = time.monotonic() + REST_SECONDS
    while is_busy(state()):
        if time.monotonic() > ends:
            raise TimeoutError(f"not at rest within {REST_SECONDS:.0f} s: {state()}")
        time.sleep(BETWEEN)
    return least(sizes)


def state() -> dict[str, Any]:
    """The engine's snapshot."""
    with urllib.request.urlopen(STATE, timeout=30) as answer:
        found: dict[str, Any] = json.load(answer)
    return found


def is_busy(state: dict[str, Any]) -> bool:
    """True while a request runs or holds blocks."""
    return bool(state["server"]["in_flight"] or state["blocks"]["held"])


def sizes() -> dict[str, int]:
    """Memory and descriptors of the HTTP process and of its child, the engine process; and the tasks.

    Threads are left to `make soak`: a pool of two starts its second when two prompts meet, with few clients late or never.
    """
    found: dict[str, int] = {}
    [engine] = [entry for entry in Path("/proc").glob("[0-9]*") if ENGINE in (entry / "cmdline").read_bytes()]
    http = Path("/proc", fields(engine)["PPid"])
    for name, process in (("http", http), ("engine", engine)):
        found[f"{name} bytes"] = int(fields(process)["VmRSS"].split()[0]) * 1024
        found[f"{name} descriptors"] = sum(1 for _ in (process / "fd").iterdir())
    return found | {"http tasks": int(state()["server"]["tasks"])}


def fields(process: Path) -> dict[str, str]:
    """/proc/<pid>/status by its names."""
    lines = (process / "status").read_text().splitlines()
    return {name: value.strip() for name, _, value in (line.partition(":") for line in lines)}


if __name__ == "__main__":
    main()
