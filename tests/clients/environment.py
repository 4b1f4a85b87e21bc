"""One environment per client, outside every package: a virtual environment or a folder of npm, kept between runs.

An environment is made anew when the files that name its versions change. Without a lock file the newest versions that
the requirements allow are installed, and the lock is written: that is how a version is raised.
"""

import hashlib
import itertools
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Final

from tests.bench.throughput import peer_venv
from tests.clients.catalogue import HERE, Client

ROOT: Final = HERE.parents[1] / ".venv-clients"
VLLM: Final = peer_venv.PACKAGE.partition("==")[0]  # pinned and installed as for the benchmarks
STAMP: Final = ".installed"
SECONDS: Final = 1800.0
NPM: Final = ("npm", "--no-audit", "--no-fund", "--omit-lockfile-registry-resolved")
NEWER: Final = 4  # minor versions of Python that are looked for
LAST_WORDS: Final = 500


class NotInstalled(Exception):
    """A client could not be installed; the message says why."""


def ensure(client: Client) -> list[str]:
    """Returns the command that runs the client's driver, after installing what it needs. Raises NotInstalled."""
    folder = ROOT / client.name
    driver = str(client.folder / "driver.py")
    if client.package == VLLM:
        try:
            return [str(peer_venv.ensure()), driver]
        except peer_venv.PeerUnavailable as error:
            raise NotInstalled(str(error)) from error
    if client.language == "python":
        _ensure_python(client, folder)
        return [str(folder / "bin" / "python"), driver]
    if shutil.which("npm") is None:
        raise NotInstalled("npm is not installed; the Node clients need Node 20 or newer with npm")
    _ensure_node(client, folder)
    for script in (*client.folder.glob("*.mjs"), *(HERE / "shared").glob("*.mjs")):
        shutil.copy(script, folder)  # Node looks for packages beside the script
    return ["node", str(folder / "driver.mjs")]


def version(client: Client) -> str:
    """The locked version of the client's package."""
    if client.package == VLLM:
        return peer_venv.PACKAGE.partition("==")[2]
    if client.language == "node":
        lock = json.loads((client.folder / "package-lock.json").read_text())
        return str(lock["packages"][f"node_modules/{client.package}"]["version"])
    for line in (client.folder / "lock.txt").read_text().splitlines():
        name, _, found = line.partition("==")
        if name.lower().replace("_", "-") == client.package:
            return found
    raise NotInstalled(f"lock.txt of {client.name} does not name {client.package}")


def _ensure_python(client: Client, folder: Path) -> None:
    requirements, lock = client.folder / "requirements.txt", client.folder / "lock.txt"
    if lock.exists() and _is_current(folder, requirements, lock):
        return
    locked = ["--constraint", str(lock)] if lock.exists() else []
    _run([_interpreter(client), "-m", "venv", "--clear", str(folder)])
    pip = [str(folder / "bin" / "python"), "-m", "pip", "--disable-pip-version-check"]
    _run([*pip, "install", "--quiet", "--no-compile", "--requirement", str(requirements), *locked])
    if not locked:
        lock.write_text(_run([*pip, "freeze", "--exclude", "setuptools"]))
    _stamp(folder, requirements, lock)


def _interpreter(client: Client) -> str:
    """This interpreter, or a newer one on the PATH where the client needs that."""
    if sys.version_info >= client.python:
        return sys.executable
    names = [f"python3.{minor}" for minor in range(client.python[1], client.python[1] + NEWER)]
    for name, folder in itertools.product(names, os.get_exec_path()):
        found = shutil.which(name, path=folder)
        if found and _makes_environments(found):
            return found
    raise NotInstalled(
        f"{client.name} needs Python {client.python[0]}.{client.python[1]} or newer; put one on the PATH"
    )


def _makes_environments(python: str) -> bool:
    """Whether it runs and has pip. A version manager's entry on the PATH fails where its version is not selected."""
    return subprocess.run([python, "-c", "import ensurepip"], capture_output=True, check=False).returncode == 0


def _ensure_node(client: Client, folder: Path) -> None:
    manifest, lock = client.folder / "package.json", client.folder / "package-lock.json"
    if lock.exists() and _is_current(folder, manifest, lock):
        return
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    for file in (manifest, lock):
        if file.exists():
            shutil.copy(file, folder)
    _run([*NPM, "ci" if lock.exists() else "install"], folder)
    if not lock.exists():
        shutil.copy(folder / lock.name, lock)
    _stamp(folder, manifest, lock)


def _digest(*files: Path) -> str:
    return hashlib.sha256(b"\0".join([sys.version.encode(), *(file.read_bytes() for file in files)])).hexdigest()


def _is_current(folder: Path, *files: Path) -> bool:
    stamp = folder / STAMP
    return stamp.exists() and stamp.read_text() == _digest(*files)


def _stamp(folder: Path, *files: Path) -> None:
    (folder / STAMP).write_text(_digest(*files))


def _run(command: list[str], cwd: Path | None = None) -> str:
    try:
        done = subprocess.run(command, cwd=cwd, capture_output=True, text=True, timeout=SECONDS, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise NotInstalled(str(error)) from error
    if done.returncode:
        said = (done.stderr or done.stdout).strip()
        raise NotInstalled(f"{' '.join(command[:5])} … failed: {said[-LAST_WORDS:]}")
    return done.stdout
