"""What was measured, one line of JSON per piece, appended as each piece ends: a bench that is stopped goes on later.

A piece's key is a digest of all that it depends on: the track's file, the job, and the code behind it. Changing a law
asks for that law's pieces again and for no other's.
"""

import hashlib
import json
from collections.abc import Iterable
from dataclasses import asdict
from functools import lru_cache
from pathlib import Path
from typing import Any, Final

import sluice_engine
import sluice_law
import sluice_operator
import sluice_sim
from sluice_sim.tracks.job import CLAIRVOYANT, STATIC, Job
from sluice_sim.tracks.track import FOLDER, Track

RESULTS: Final = Path(sluice_sim.__file__).parent / "results"
OURS: Final = ("sluice", "replicas-only", "admission-only", CLAIRVOYANT, STATIC)
_SIM, _LAW, _ENGINE, _DECIDE = (
    Path(sluice_sim.__file__).parent,
    Path(sluice_law.__file__).parent,
    Path(sluice_engine.__file__).parent,
    Path(sluice_operator.__file__).parent / "decide",
)
# What every simulation runs through. The picture, the command line and the tables change no figure.
_CORE: Final = tuple(
    _SIM / f"{name}.py"
    for name in ("books", "coarse", "coarse_queue", "engine", "fleet", "fluid_window", "pods", "profile_data", "ramp",
                 "record", "result", "routing", "score", "settings")
)  # fmt: skip
_SHARED: Final = (
    *(_LAW / f"{name}.py" for name in ("steptime", "limit")),
    *(_ENGINE / f"{name}.py" for name in ("admission", "scheduler/displacing", "scheduler/tenants")),
)
_TRACK: Final = tuple(
    _SIM / "tracks" / f"{name}.py" for name in ("job", "overload", "requests", "schedule", "track", "variants")
)


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
        with self.path.open("a", encoding="utf-8") as file:
            file.write(json.dumps({"key": key, "about": about, "value": value}) + "\n")

    def keep(self, keys: Iterable[str]) -> None:
        """Write the file anew with these pieces only: those of older code are nobody's any more."""
        wanted = set(keys)
        if not self.path.exists():
            return
        lines = self.path.read_text(encoding="utf-8").splitlines()
        kept = {json.loads(line)["key"]: line for line in lines if _key(line) in wanted}
        self.path.write_text("".join(f"{line}\n" for line in kept.values()), encoding="utf-8")


def key_of(track: Track, job: Job, *also: object) -> str:
    """The digest of what the job's outcome depends on. `also`: more, for pieces that are no single run."""
    parts = [json.dumps(asdict(track), sort_keys=True), json.dumps(asdict(job), sort_keys=True), repr(also)]
    return hashlib.sha256("\n".join([*parts, _code(job.law)]).encode()).hexdigest()[:20]


@lru_cache(maxsize=64)
def _code(law: str) -> str:
    files = [*_CORE, *_SHARED, *_TRACK, *sorted((_SIM / "traces").glob("*.py"))]
    if law in OURS:
        files += [*sorted(_LAW.glob("*.py")), *sorted(_DECIDE.glob("*.py")), _SIM / "laws" / "ours.py"]
    else:
        # A family shares helpers: all peers' files stand for each of them. They change seldom.
        files += [path for path in sorted((_SIM / "laws").glob("*.py")) if path.name != "ours.py"]
    digest = hashlib.sha256()
    for path in files:
        digest.update(path.name.encode() + b"\0" + path.read_bytes())
    return digest.hexdigest()


def _key(line: str) -> str | None:
    try:
        value = json.loads(line)
    except json.JSONDecodeError:
        return None
    return value.get("key") if isinstance(value, dict) else None


__all__ = ["FOLDER", "RESULTS", "Store", "key_of"]
