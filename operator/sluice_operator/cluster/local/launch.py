"""Translates a rendered container into a command on this machine.

The arguments of the container are kept. Options for the features that only a cluster has (pod network, mounted Secret)
follow them on the command line, where the later option wins.
"""

import base64
import os
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from sluice import contract
from sluice_operator.cluster.client import Object
from sluice_operator.cluster.local.process import Ports
from sluice_operator.render.engine_args import as_given

NO_GRACE_SECONDS: Final = "0"  # the gateway drops a deleted engine at once; no endpoint list lags

_POD_NAME: Final = "metadata.name"
_KV_FRACTION: Final = "--kv-memory-fraction="

PVC_UNSUPPORTED: Final = (
    "spec.model.uri: a volume claim (pvc://) exists only on a cluster; use file:///path/to/model on this machine"
)


class LocalError(Exception):
    """This machine cannot run the pod as specified. The message gives the cause and the next step."""


@dataclass(frozen=True, slots=True)
class Launch:
    """Arguments and environment of one container start."""

    argv: list[str]
    env: dict[str, str]


@dataclass(frozen=True, slots=True)
class PodFiles:
    """Paths of the files of one pod in the state folder."""

    log: Path
    termination: Path
    token: Path
    targets: Path
    revision: Path
    api_keys: Path | None = None  # the user's key file, one for all pods; None: no key is needed
    gateway_token: Path | None = None  # of the gateway that verifies these keys

    @classmethod
    def under(
        cls, folder: Path, pod: str, api_keys: Path | None = None, gateway_token: Path | None = None
    ) -> "PodFiles":
        """Return the paths for `pod`; creates no file."""
        log, termination, token, targets, revision = (
            folder / f"{pod}.{end}" for end in ("log", "termination", "token", "targets", "revision")
        )
        return cls(log, termination, token, targets, revision, api_keys, gateway_token)


def serve_launch(container: Object, ports: Ports, files: PodFiles, pod: str, replicas: int = 1) -> Launch:
    """Return the `sluice serve` command of the container, on local `ports`, beside up to `replicas` of its kind.

    Between the gateway and an engine there is no TLS: both are processes of this machine, on its loopback interface.
    A failed download ends the process, so that a fault that cannot pass ends `sluice up`; others pass with a restart.
    """
    arguments = [as_given(str(argument)) for argument in container.get("args") or ()]
    overrides = [
        "--host", "127.0.0.1", "--port", str(ports.data), "--admin-port", str(ports.admin),
        "--admin-token-file", str(files.token), "--targets-file", str(files.targets),
        "--revision-file", str(files.revision),
        "--grace-seconds", NO_GRACE_SECONDS, "--cache", "", "--fetch-errors", "exit",
        "--tls-cert-file", "", "--tls-key-file", "",
        "--api-keys-file", "" if files.api_keys is None else str(files.api_keys),
        "--gateway-token-file", "" if files.gateway_token is None else str(files.gateway_token),
    ]  # fmt: skip
    share = kv_share(arguments, replicas)
    if share is not None:
        overrides.append(f"{_KV_FRACTION}{share:.4g}")
    return Launch([sys.executable, "-m", "sluice", *arguments, *overrides], container_env(container, files, pod=pod))


def kv_share(arguments: Sequence[str], replicas: int) -> float | None:
    """Return the fraction of free memory for the KV cache of one of `replicas` on this machine, which all measure the
    same free memory. None if the arguments give a size instead of a fraction."""
    given = [argument.removeprefix(_KV_FRACTION) for argument in arguments if argument.startswith(_KV_FRACTION)]
    return float(given[-1]) / max(1, replicas) if given else None


def reject_claims(template: Object) -> None:
    """Check the volumes. Raises LocalError for a pod whose model is on a volume claim; the cache is the user's own."""
    for volume in template.get("spec", {}).get("volumes") or ():
        if "persistentVolumeClaim" in volume and volume.get("name") == "model":
            raise LocalError(PVC_UNSUPPORTED)


def reject_references(container: Object) -> None:
    """Check the variables. Raises LocalError for one whose value only a cluster has."""
    if container.get("envFrom"):
        raise LocalError(
            "spec.engine.template.envFrom: there is no cluster that has the Secrets and ConfigMaps: leave it out and export "
            "the variables in the shell"
        )
    for entry in container.get("env") or ():
        source = entry.get("valueFrom") or {}
        if source and source.get("fieldRef", {}).get("fieldPath") != _POD_NAME:
            raise LocalError(
                f"spec.engine.template.env: {entry['name']} comes from a Secret, a ConfigMap or the pod, and there is no "
                "cluster that has it: set value here, or leave the entry out and export the variable in the shell"
            )


def container_env(container: Object, files: PodFiles, *, pod: str) -> dict[str, str]:
    """Return this process's environment, overridden by the container's. `metadata.name` is the only supported field
    reference."""
    env = dict(os.environ)
    for entry in container.get("env") or ():
        if entry["name"] in ("HOME", contract.ENV_HUB_TOKEN_PATH):
            continue  # valid in the image only; the user's own are kept
        field = ((entry.get("valueFrom") or {}).get("fieldRef") or {}).get("fieldPath")
        if field == _POD_NAME:
            env[entry["name"]] = pod
        elif "valueFrom" not in entry:
            env[entry["name"]] = str(entry.get("value", ""))
    env["PYTHONUNBUFFERED"] = "1"
    env[contract.ENV_TERMINATION_MESSAGE] = str(files.termination)
    return env


def admin_secret_name(template: Object) -> str | None:
    """Return the name of the Secret that the template mounts as the admin token; None without one."""
    volume = _mounted(template, contract.ADMIN_TOKEN_MOUNT)
    return str(volume["secret"].get("secretName")) if "secret" in volume else None


def targets_name(template: Object) -> str | None:
    """Return the name of the ConfigMap that the template mounts as the targets; None without one."""
    volume = _mounted(template, contract.TARGETS_MOUNT)
    return str(volume["configMap"].get("name")) if "configMap" in volume else None


def _mounted(template: Object, path: str) -> Object:
    """The volume that the first container mounts at `path`; an empty dict without one."""
    spec = template.get("spec", {})
    container = (spec.get("containers") or [{}])[0]
    names = {mount.get("name") for mount in container.get("volumeMounts") or () if mount.get("mountPath") == path}
    return next((dict(volume) for volume in spec.get("volumes") or () if volume.get("name") in names), {})


def secret_value(secret: Mapping[str, object], key: str) -> bytes:
    """Return one value of a Secret, decoded. Raises LocalError if the key is missing."""
    plain, encoded = secret.get("stringData"), secret.get("data")
    if isinstance(plain, dict) and key in plain:
        return str(plain[key]).encode()
    if isinstance(encoded, dict) and key in encoded:
        return base64.b64decode(encoded[key])
    raise LocalError(f"the admin Secret has no key {key!r}: delete it, and the operator creates it again")


def replace_file(path: Path, content: bytes) -> None:
    """Replace a file atomically: a reader gets either the old or the new content."""
    draft = path.with_name(f"{path.name}.new")
    write_private(draft, content)
    draft.replace(path)


def write_private(path: Path, content: bytes) -> None:
    """Write a new file that is readable by this user only from its creation on (mode 0600)."""
    path.unlink(missing_ok=True)
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(descriptor, "wb") as file:
        file.write(content)
