"""The folder of downloaded models, which processes and pods share.

    <cache>/<model>/<revision>/            a complete model folder; `.sluice.json` in it lists its files
    <cache>/<model>/<revision>.partial/    a download: complete files, and `NAME.part`
    <cache>/<model>/<revision>.lease.N     who downloads it (`lease.py`)
    <cache>/<model>/<name>.ref             the revision that a branch or tag last had, for use without a network

A model folder appears by one rename, after every file is complete, checked and on disk: it is never half-written.
"""

import hashlib
import json
import logging
import os
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote

from sluice.models.uri import HubModel, LocalModel, RemoteModel, UriInvalid, parse_uri

MARKER: Final = ".sluice.json"
PART: Final = ".part"
ENV_CACHE: Final = "SLUICE_CACHE"
_BLOCK: Final = 1 << 20

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class CachedModel:
    """One complete model of the cache."""

    uri: str
    revision: str
    folder: Path
    size: int  # bytes


@dataclass(frozen=True, slots=True)
class Entry:
    """The place of one revision of a model in the cache."""

    root: Path
    revision: str

    @property
    def folder(self) -> Path:
        """The model folder, once it is complete."""
        return self.root / self.revision

    @property
    def partial(self) -> Path:
        """The folder of the download."""
        return self.root / f"{self.revision}.partial"

    @property
    def lease(self) -> Path:
        """The path of the lease."""
        return self.root / f"{self.revision}.lease"


def default_cache() -> Path:
    """$SLUICE_CACHE, else $XDG_CACHE_HOME/sluice/models, else ~/.cache/sluice/models."""
    if given := os.environ.get(ENV_CACHE):
        return Path(given).expanduser()
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache") / "sluice" / "models"


def entry_of(cache: Path, uri: RemoteModel, revision: str) -> Entry:
    """The place of a revision of the model."""
    return Entry(_root(cache, uri), revision)


def is_complete(entry: Entry) -> bool:
    """True if the model is complete and unchanged: each file has its recorded size and, if it was touched since, its
    recorded SHA-256.
    """
    recorded = _marker(entry.folder)
    return recorded is not None and all(_unchanged(entry.folder / n, f) for n, f in recorded["files"].items())


def reopen(entry: Entry) -> None:
    """Turns a damaged model folder into a download of its damaged files; does nothing if there is none."""
    if not entry.folder.is_dir():
        return
    recorded = _marker(entry.folder) or {"files": {}}
    log.warning("%s is damaged: its broken files are fetched again", entry.folder)
    shutil.rmtree(entry.partial, ignore_errors=True)
    entry.folder.rename(entry.partial)
    (entry.partial / MARKER).unlink(missing_ok=True)
    for path in files_in(entry.partial):
        known = recorded["files"].get(path.relative_to(entry.partial).as_posix())
        if known is None or not _unchanged(path, known):
            path.unlink()


def received_bytes(entry: Entry) -> int:
    """Bytes of the model on disk, of a download or of the complete folder."""
    folder = entry.partial if entry.partial.is_dir() else entry.folder
    return sum(_size(path) for path in files_in(folder))


def publish(entry: Entry, uri: RemoteModel | LocalModel, hashes: dict[str, str]) -> None:
    """Makes a finished download the model folder. `hashes`: name → SHA-256 of each of its files. Raises OSError."""
    files = {
        name: {"size": found.st_size, "modified": found.st_mtime_ns, "sha256": hashes[name]}
        for name in hashes
        for found in [(entry.partial / name).stat()]
    }
    marker = {"uri": str(uri), "revision": entry.revision, "files": files}
    write_durably(entry.partial / MARKER, json.dumps(marker, indent=1).encode())
    entry.partial.rename(entry.folder)
    _sync(entry.root)


def remember(cache: Path, uri: RemoteModel, revision: str) -> None:
    """Records the revision that the model's branch or tag has now. Raises OSError."""
    write_durably(_ref(cache, uri), revision.encode())


def recall(cache: Path, uri: RemoteModel) -> str | None:
    """The revision that the model's branch or tag last had; None if it was never resolved here."""
    try:
        return _ref(cache, uri).read_text().strip() or None
    except OSError:
        return None


def cached_models(cache: Path) -> tuple[CachedModel, ...]:
    """The complete models of the cache, by URI and revision."""
    found = []
    for marker in cache.glob(f"*/*/{MARKER}"):
        recorded = _marker(marker.parent)
        if recorded is not None and not marker.parent.name.endswith(".partial"):
            size = sum(file["size"] for file in recorded["files"].values())
            found.append(CachedModel(recorded["uri"], recorded["revision"], marker.parent, size))
    return tuple(sorted(found, key=lambda model: (model.uri, model.revision)))


def remove(model: CachedModel) -> None:
    """Deletes a model of the cache. An engine that has it open keeps its pages until it ends. Raises OSError."""
    doomed = model.folder.with_name(f"{model.folder.name}.partial")
    shutil.rmtree(doomed, ignore_errors=True)
    model.folder.rename(doomed)  # at once, so that no engine starts from a folder that is half removed
    shutil.rmtree(doomed)


def sha256_of(path: Path, on_block: Callable[[int], None] = lambda _: None) -> str:
    """The SHA-256 of a file in hex. `on_block` receives the size of each block. Raises OSError."""
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while block := file.read(_BLOCK):
            digest.update(block)
            on_block(len(block))
    return digest.hexdigest()


def write_durably(path: Path, content: bytes) -> None:
    """Replaces a file such that after a crash it has either its old or its new content. Raises OSError."""
    draft = path.with_name(f".{path.name}.{os.getpid()}")
    with draft.open("wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
    draft.replace(path)


def _root(cache: Path, uri: RemoteModel) -> Path:
    if isinstance(uri, HubModel):
        parts = ["hf", *uri.repo.split("/"), *(uri.file.split("/") if uri.file else ())]
    else:
        parts = ["s3", uri.bucket, *uri.prefix.split("/")]
    return cache / "--".join(quote(part, safe=" ") for part in parts if part)


def _ref(cache: Path, uri: RemoteModel) -> Path:
    name = (uri.revision if isinstance(uri, HubModel) else None) or "default"
    return _root(cache, uri) / f"{quote(name, safe='')}.ref"


def _marker(folder: Path) -> dict[str, Any] | None:
    """The content of a folder's marker; None if there is none that can be read."""
    try:
        recorded = json.loads((folder / MARKER).read_bytes())
        parse_uri(recorded["uri"])
        return recorded if all({"size", "sha256", "modified"} <= f.keys() for f in recorded["files"].values()) else None
    except (OSError, ValueError, KeyError, TypeError, AttributeError, UriInvalid):
        return None


def _unchanged(path: Path, recorded: dict[str, Any]) -> bool:
    try:
        found = path.stat()
        if found.st_size != recorded["size"]:
            return False
        return found.st_mtime_ns == recorded["modified"] or sha256_of(path) == recorded["sha256"]
    except OSError:
        return False


def files_in(folder: Path) -> list[Path]:
    """All files under a folder; none if it does not exist."""
    return [path for path in folder.rglob("*") if path.is_file()]


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except FileNotFoundError:  # renamed since it was listed
        return 0


def _sync(folder: Path) -> None:
    """Writes a folder's entries to disk, so that a rename survives a crash."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
