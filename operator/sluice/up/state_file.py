"""The resource of a running `sluice up` as a file of this user, so that `sluice explain --local` can read its status."""

import json
import os
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from sluice_operator.cluster.client import Key, Object


class NotRunning(LookupError):
    """No `sluice up` of this name runs here, or the choice is not clear. The message is one sentence."""


def state_folder(environment: Mapping[str, str] | None = None) -> Path:
    """Return the folder of the state files: $XDG_RUNTIME_DIR/sluice, or one of this user in the temporary folder."""
    found = os.environ if environment is None else environment
    base = found.get("XDG_RUNTIME_DIR")
    return Path(base) / "sluice" if base else Path(tempfile.gettempdir()) / f"sluice-{os.getuid()}"


class StateFile:
    """The file of one running `sluice up`. `remove()` must be called at its end."""

    def __init__(self, key: Key, folder: Path | None = None) -> None:
        """`folder` is created with the first write; default: state_folder()."""
        self._folder = state_folder() if folder is None else folder
        self._path = self._folder / f"{key.namespace}.{key.name}.json"
        self._version: str | None = None

    def write(self, resource: Object) -> None:
        """Replace the file if the resource has changed.

        Raises OSError, also for a folder of another user, who could read or replace the file.
        """
        version = resource["metadata"].get("resourceVersion")
        if version == self._version:
            return
        self._version = version
        self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        if self._folder.stat().st_uid != os.getuid():
            raise PermissionError(f"{self._folder} belongs to another user: set XDG_RUNTIME_DIR to a folder of yours")
        draft = self._path.with_suffix(".new")
        draft.write_text(json.dumps({"pid": os.getpid(), "resource": resource}))
        draft.replace(self._path)

    def remove(self) -> None:
        """Delete the file."""
        self._path.unlink(missing_ok=True)


def read_running(name: str | None, folder: Path | None = None) -> Object:
    """Return the resource of the running `sluice up` of this name, or of the only one. Raises NotRunning."""
    running = dict(_running(state_folder() if folder is None else folder))
    if name is not None and name in running:
        return running[name]
    names = ", ".join(sorted(running))
    if not running:
        raise NotRunning("No `sluice up` of this user runs on this machine. Start one with sluice up FILE.")
    if name is not None:
        raise NotRunning(f"No `sluice up` of the name {name} runs on this machine; there are: {names}.")
    if len(running) > 1:
        raise NotRunning(f"Several run on this machine: {names}. Name one of them.")
    return running.popitem()[1]


def _running(folder: Path) -> Iterator[tuple[str, Object]]:
    for path in sorted(folder.glob("*.json")):
        try:
            state: dict[str, Any] = json.loads(path.read_text())
            os.kill(state["pid"], 0)
        except (OSError, ValueError, KeyError):  # a process that was killed could not remove its file
            continue
        yield str(state["resource"]["metadata"]["name"]), state["resource"]
