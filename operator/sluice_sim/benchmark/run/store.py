"""Measured pieces, one line of JSON per piece, appended as each piece ends, so that a stopped benchmark can resume.

A piece's key is "asked-code": a digest of the question (the track's file, the job, the traces and measurements that it
reads) and a digest of the code that the piece is valid for. A change to a law invalidates that law's pieces and no
others. `measured_by` is the code that measured the piece; it differs from the key's code if a piece was re-keyed.
"""

import hashlib
import json
import os
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, Final

import sluice_sim
from sluice_sim.benchmark.run.job import CLAIRVOYANT, STATIC, Job
from sluice_sim.benchmark.run.provenance import LENGTH, OTHER_CODE, code_digest, commit
from sluice_sim.benchmark.track import FOLDER, Track
from sluice_sim.data import FOLDER as DATA

RESULTS: Final = Path(sluice_sim.__file__).parents[2] / "tests" / "bench" / "results" / "autoscaling"


UNKNOWN: Final = "unknown"  # code of a line without `measured_by`


@dataclass(frozen=True, slots=True)
class _Piece:
    value: dict[str, Any]
    measured_by: str


class Store:
    """Pieces by key, in a file of lines. A line truncated by a crash is ignored, so its piece is measured again.

    `any_code`: a piece of other code also counts as measured if there is none of the requested code.
    """

    def __init__(self, path: Path, *, any_code: bool = False) -> None:
        self.path, self._any_code = path, any_code
        self._found: dict[str, _Piece] = {}
        self._newest: dict[str, str] = {}  # digest of the question → the key that was written last
        if path.exists():
            for line in path.read_text(encoding="utf-8").splitlines():
                try:
                    value = json.loads(line)
                    self._add(value["key"], _Piece(value["value"], value.get("measured_by", UNKNOWN)))
                except (json.JSONDecodeError, KeyError, TypeError, AttributeError):
                    continue

    def __contains__(self, key: str) -> bool:
        """True if the piece is measured."""
        return self._held(key) is not None

    def __getitem__(self, key: str) -> dict[str, Any]:
        """The piece; it has the key OTHER_CODE if other code measured it. Raises KeyError."""
        held = self._held(key)
        if held is None:
            raise KeyError(key)
        piece = self._found[held]
        other = {} if piece.measured_by == code_of_key(key) else {OTHER_CODE: piece.measured_by}
        return piece.value | other

    def put(self, key: str, about: str, value: dict[str, Any]) -> None:
        """Store a piece that this code measured, on disk at once."""
        measured_by = code_of_key(key)
        self._add(key, _Piece(value, measured_by))
        self.path.parent.mkdir(parents=True, exist_ok=True)
        described = {"key": key, "measured_by": measured_by, "commit": commit(), "about": about}
        line = json.dumps(described | {"value": value}) + "\n"
        with self.path.open("a+b") as file:
            if file.tell():
                file.seek(-1, os.SEEK_END)
                if file.read(1) != b"\n":  # a crash truncated the last line; this line must not be appended to it
                    line = "\n" + line
            file.write(line.encode())

    def keep(self, keys: Iterable[str]) -> None:
        """Rewrite the file with these pieces and all others that are valid for the same code, without those of older code.

        The others belong to further parts of a benchmark, such as its ablation.
        """
        wanted = {held for key in keys if (held := self._held(key)) is not None}
        valid = {code_of_key(key) for key in wanted} - {""}
        if not self.path.exists():
            return
        lines = self.path.read_text(encoding="utf-8").splitlines()
        kept = {key: line for line in lines if (key := _key(line)) in wanted or (key and code_of_key(key) in valid)}
        written = self.path.with_suffix(".new")  # an interruption leaves either the old or the new file
        written.write_text("".join(f"{line}\n" for line in kept.values()), encoding="utf-8")
        written.replace(self.path)

    def _add(self, key: str, piece: _Piece) -> None:
        self._found[key] = piece
        self._newest[_asked(key)] = key

    def _held(self, key: str) -> str | None:
        if key in self._found:
            return key
        return self._newest.get(_asked(key)) if self._any_code else None


def key_of(track: Track, job: Job, *also: object) -> str:
    """The digests of the question and of the code that answers it.

    `also`: further inputs of a piece that is no single run.
    """
    described = asdict(track)
    for said in ("words", "hardware"):  # nothing is computed from these
        del described[said]
    if job.law in (STATIC, CLAIRVOYANT):
        del described["begin"]  # these laws set their own initial count
    parts = [json.dumps(described, sort_keys=True), json.dumps(asdict(job), sort_keys=True), repr(also)]
    digest = hashlib.sha256("\n".join(parts).encode())
    for path in _data(track):
        digest.update(f"\n{path.name} {_digest(path)}".encode())
    return f"{digest.hexdigest()[:LENGTH]}-{code_digest(job.law, job.mode or track.mode)}"


def code_of_key(key: str) -> str:
    """The digest of the code that a key's piece is valid for."""
    return key.partition("-")[2]


def _data(track: Track) -> list[Path]:
    """The bundled files that the track's load and hardware are read from."""
    asked = tuple(f"{name}." for name in (track.load.trace, track.load.lengths) if name)
    return sorted(path for path in DATA.glob("*.gz") if path.name.startswith((*asked, "profile_")))


@lru_cache(maxsize=256)
def _digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def _asked(key: str) -> str:
    return key.partition("-")[0]


def _key(line: str) -> str | None:
    try:
        value = json.loads(line)
    except json.JSONDecodeError:
        return None
    return value.get("key") if isinstance(value, dict) else None


__all__ = ["FOLDER", "RESULTS", "Store", "code_of_key", "key_of"]
