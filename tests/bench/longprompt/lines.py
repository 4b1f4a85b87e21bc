"""A measurement in a process of its own that prints one JSON line per result."""

import json
import subprocess
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

SECONDS = 1200.0


def measured(command: Sequence[str], count: int, log: Path, say: Callable[[int], None]) -> list[dict[str, Any]]:
    """The results, `count` of them. `say` gets the number of each. Raises RuntimeError if the process ends early."""
    found: list[dict[str, Any]] = []
    with (
        log.open("w") as file,
        subprocess.Popen([*command], stdout=subprocess.PIPE, stderr=file, text=True) as running,
    ):
        try:
            for line in running.stdout or ():
                found.append(json.loads(line))
                say(len(found))
            running.wait(timeout=SECONDS)
        finally:
            running.kill()
    if len(found) < count:
        raise RuntimeError(f"the engine ended after {len(found)} of {count} results; its log is {log}")
    return found
