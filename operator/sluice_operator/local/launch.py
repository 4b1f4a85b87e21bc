"""From a rendered container to a command on this machine.

The container's own arguments stay as they are; what only a cluster can give (pod network, mounted Secret) is replaced
by options that come later on the command line, and the later option wins.
"""

import base64
import os
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from sluice import contract
from sluice_operator.local.process import Ports
from sluice_operator.world import Object

NO_GRACE_SECONDS: Final = "0"  # the front door forgets a leaving engine at once: no endpoint lags behind

PVC_REFUSED: Final = (
    "spec.model.uri: a volume claim (pvc://) exists only on a cluster; use file:///path/to/model on this machine"
)


class LocalError(Exception):
    """This machine cannot do what was asked. Says what, why and what to do."""


@dataclass(frozen=True, slots=True)
class Launch:
    """One start of one container."""

    argv: list[str]
    env: dict[str, str]


@dataclass(frozen=True, slots=True)
class PodFiles:
    """Where one pod keeps its things under the state folder."""

    log: Path
    termination: Path
    token: Path

    @classmethod
    def under(cls, folder: Path, pod: str) -> "PodFiles":
        """The files of a pod, not made yet."""
        return cls(folder / f"{pod}.log", folder / f"{pod}.termination", folder / f"{pod}.token")


def serve_launch(container: Object, ports: Ports, files: PodFiles, *, pod: str) -> Launch:
    """`sluice serve` as the container asks, on free local ports."""
    arguments = [str(argument) for argument in container.get("args") or ()]
    overrides = [
        "--host", "127.0.0.1", "--port", str(ports.data), "--admin-port", str(ports.admin),
        "--admin-token-file", str(files.token), "--grace-seconds", NO_GRACE_SECONDS,
    ]  # fmt: skip
    return Launch([sys.executable, "-m", "sluice", *arguments, *overrides], container_env(container, files, pod=pod))


def refuse_claims(template: Object) -> None:
    """Raises LocalError for a pod that mounts a volume claim."""
    for volume in template.get("spec", {}).get("volumes") or ():
        if "persistentVolumeClaim" in volume:
            raise LocalError(PVC_REFUSED)


def container_env(container: Object, files: PodFiles, *, pod: str) -> dict[str, str]:
    """This process's environment with the container's on top; `metadata.name` is the one field reference known."""
    env = dict(os.environ)
    for entry in container.get("env") or ():
        if entry["name"] == "HOME":
            continue  # the image's; this machine has its own
        field = ((entry.get("valueFrom") or {}).get("fieldRef") or {}).get("fieldPath")
        if field == "metadata.name":
            env[entry["name"]] = pod
        elif "valueFrom" not in entry:
            env[entry["name"]] = str(entry.get("value", ""))
    env["PYTHONUNBUFFERED"] = "1"
    env[contract.ENV_TERMINATION_MESSAGE] = str(files.termination)
    return env


def admin_secret_name(template: Object) -> str | None:
    """The Secret that the template mounts as the admin token."""
    container = (template.get("spec", {}).get("containers") or [{}])[0]
    mounts = {mount.get("name"): mount.get("mountPath") for mount in container.get("volumeMounts") or ()}
    for volume in template.get("spec", {}).get("volumes") or ():
        if mounts.get(volume.get("name")) == contract.ADMIN_TOKEN_MOUNT and "secret" in volume:
            return str(volume["secret"].get("secretName"))
    return None


def secret_value(secret: Mapping[str, object], key: str) -> bytes:
    """One value of a Secret. Raises LocalError where it has none."""
    plain, encoded = secret.get("stringData"), secret.get("data")
    if isinstance(plain, dict) and key in plain:
        return str(plain[key]).encode()
    if isinstance(encoded, dict) and key in encoded:
        return base64.b64decode(encoded[key])
    raise LocalError(f"the admin Secret has no key {key!r}: delete it, and it is made again")


def write_private(path: Path, content: bytes) -> None:
    """A file that only this user reads, from its first byte on."""
    path.unlink(missing_ok=True)
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(descriptor, "wb") as file:
        file.write(content)
