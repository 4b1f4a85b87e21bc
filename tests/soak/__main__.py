"""`python -m tests.soak [--minutes 30]`: rounds of churn against a real server; exit code 1 if it is larger at rest.

Each line of the output is one sample. The last line is the result.
"""

import argparse
import sys
import tempfile
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Final

import psutil

from sluice_engine import tiny
from tests.engine.serving import Served, poll, serving
from tests.soak.churn import EXPECTED
from tests.soak.flatness import faults, summary
from tests.soak.rounds import churned, least

ROUNDS: Final = 30  # that the time is for
WORKERS: Final = 16
READY_SECONDS: Final = 600.0  # beside other work the start of a server takes minutes


def main() -> int:
    """Returns 0 if nothing grew and every answer was expected."""
    parser = argparse.ArgumentParser(prog="python -m tests.soak")
    parser.add_argument("--minutes", type=float, default=30.0)
    seconds = parser.parse_args().minutes * 60
    with tempfile.TemporaryDirectory() as folder, _server(Path(folder) / "log") as served:
        url = f"http://127.0.0.1:{served.port}"
        samples, statuses = churned(url, WORKERS, seconds, ROUNDS, lambda: _at_rest(served), _say)
    unexpected = {status: count for status, count in statuses.items() if status not in EXPECTED}
    found = faults(samples) + ([f"unexpected statuses {unexpected}"] if unexpected else [])
    answers = ", ".join(f"{count} × {status}" for status, count in sorted(statuses.items()))
    sys.stdout.write(
        f"{'GREW' if found else 'FLAT'} over {sum(statuses.values())} answers ({answers}): {summary(samples)}\n"
    )
    sys.stdout.writelines(f"  {each}\n" for each in found)
    return 1 if found else 0


def _say(line: str) -> None:
    sys.stdout.write(line)
    sys.stdout.flush()


def _server(log: Path) -> AbstractContextManager[Served]:
    return serving(tiny.ensure(), log, ready_seconds=READY_SECONDS)


def _at_rest(served: Served) -> dict[str, int]:
    """The sizes of the server's processes when nothing runs. Raises AssertionError if it does not come to rest."""
    poll(lambda: _running(served) == 0 and served.blocks()["held"] == 0, READY_SECONDS, served.log)
    return least(lambda: _sizes(served))


def _running(served: Served) -> int:
    return int(served.admin("GET", "/state").json()["server"]["in_flight"])


def _sizes(served: Served) -> dict[str, int]:
    sizes: dict[str, int] = {}
    for name, pid in (("http", served.process.pid), ("engine", served.engine_pid())):
        process = psutil.Process(pid)  # type: ignore[no-untyped-call]
        sizes[f"{name} bytes"] = process.memory_info().rss
        sizes[f"{name} descriptors"] = process.num_fds()  # type: ignore[no-untyped-call]
        sizes[f"{name} threads"] = process.num_threads()  # type: ignore[no-untyped-call]
    return sizes | {"http tasks": int(served.admin("GET", "/state").json()["server"]["tasks"])}


if __name__ == "__main__":
    sys.exit(main())
