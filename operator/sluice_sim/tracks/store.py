"""What was measured, one line of JSON per piece, appended as each piece ends: a bench that is stopped goes on later.

A piece's key is a digest of all that it depends on: the track's file, the job, the traces and measurements that it
reads, and the code behind it, without its comments and docstrings. Changing a law asks for that law's pieces again and
for no other's.
"""

import hashlib
import json
import os
from collections.abc import Iterable
from dataclasses import asdict
from functools import lru_cache
from pathlib import Path
from typing import Any, Final

import sluice_sim
from sluice_sim.data import FOLDER as DATA
from sluice_sim.tracks.job import CLAIRVOYANT, STATIC, Job
from sluice_sim.tracks.sources import sources
from sluice_sim.tracks.statements import code_of
from sluice_sim.tracks.track import FOLDER, Track

RESULTS: Final = Path(sluice_sim.__file__).parent / "results"


class Store:
    """Pieces by key, in a file of lines. A line that was cut off by a crash is left out and measured again."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._found: dict[str, dict[str, Any]] = {}
        if path.exists():
            for line in path.read_text(encoding="utf-8").splitlines():
                try:
                    value = json.loads(line)
                    self._found[value["key"]] = value["value"]
                except (json.JSONDecodeError, KeyError, TypeError):
                    continue

    def __contains__(self, key: str) -> bool:
        """Whether the piece was measured."""
        return key in self._found

    def __getitem__(self, key: str) -> dict[str, Any]:
        """The piece. Raises KeyError."""
        return self._found[key]

    def put(self, key: str, about: str, value: dict[str, Any]) -> None:
        """Keep it, on disk at once."""
        self._found[key] = value
        self.path.parent.mkdir(parents=True, exist_ok=True)
        line = json.dumps({"key": key, "about": about, "value": value}) + "\n"
        with self.path.open("a+b") as file:
            if file.tell():
                file.seek(-1, os.SEEK_END)
                if file.read(1) != b"\n":  # a crash cut the last line off; it must not take this one along
                    line = "\n" + line
            file.write(line.encode())

    def keep(self, keys: Iterable[str]) -> None:
        """Write the file anew with these pieces only: those of older code are nobody's any more."""
        wanted = set(keys)
        if not self.path.exists():
            return
        lines = self.path.read_text(encoding="utf-8").splitlines()
        kept = {json.loads(line)["key"]: line for line in lines if _key(line) in wanted}
        written = self.path.with_suffix(".new")  # beside it: whoever is stopped here has the old file or the new one
        written.write_text("".join(f"{line}\n" for line in kept.values()), encoding="utf-8")
        written.replace(self.path)


def key_of(track: Track, job: Job, *also: object) -> str:
    """The digest of what the job's outcome depends on. `also`: more, for pieces that are no single run."""
    described = asdict(track)
    for said in ("words", "hardware"):  # nothing is computed from them
        del described[said]
    if job.law in (STATIC, CLAIRVOYANT):
        del described["begin"]  # these begin as they go on
    parts = [json.dumps(described, sort_keys=True), json.dumps(asdict(job), sort_keys=True), repr(also)]
    files = (*sources(job.law, job.mode or track.mode), *_data(track))
    digest = hashlib.sha256("\n".join(parts).encode())
    for path in files:
        digest.update(f"\n{path.name} {_digest(path)}".encode())
    return digest.hexdigest()[:20]


def _data(track: Track) -> list[Path]:
    """The bundled files that the track's load and hardware are read from."""
    asked = tuple(f"{name}." for name in (track.load.trace, track.load.lengths) if name)
    return sorted(path for path in DATA.glob("*.gz") if path.name.startswith((*asked, "profile_")))


@lru_cache(maxsize=1024)
def _digest(path: Path) -> str:
    held = code_of(path.read_text(encoding="utf-8")).encode() if path.suffix == ".py" else path.read_bytes()
    return hashlib.sha256(held).hexdigest()


def _key(line: str) -> str | None:
    try:
        value = json.loads(line)
    except json.JSONDecodeError:
        return None
    return value.get("key") if isinstance(value, dict) else None


__all__ = ["FOLDER", "RESULTS", "Store", "key_of"]
