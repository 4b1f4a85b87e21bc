"""The traces and measurements that results need, with their licences (README.md), so that a user can repeat them."""

from pathlib import Path
from typing import Final

FOLDER: Final = Path(__file__).parent
SUFFIXES: Final = (".csv.gz", ".jsonl.gz")


def bundled(name: str) -> Path | None:
    """The bundled file of this name, with or without its ending; None where there is none."""
    if "/" in name or "\\" in name:
        return None
    return next((path for suffix in ("", *SUFFIXES) if (path := FOLDER / f"{name}{suffix}").is_file()), None)
