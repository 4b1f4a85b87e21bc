"""Why an engine cannot start: what is checked before any process is spawned, and how the operator learns of a failure."""

import logging
import os
from collections.abc import Callable, Mapping
from pathlib import Path

import orjson

from sluice import contract
from sluice.mounted_files import FileFault
from sluice_engine.server.auth.metrics import AccessMetrics
from sluice_engine.server.auth.secret_files import SecretFiles
from sluice_engine.server.options import SecretPaths

log = logging.getLogger("sluice.server")


class StartFailed(Exception):
    """The engine exited or cannot start. `reason` is a REASON_* of the contract; `code` is the process's exit code."""

    def __init__(self, reason: str, message: str) -> None:
        super().__init__(message)
        self.reason = reason
        needs_change = reason in (*contract.CONFIG_REASONS, *contract.FETCH_REASONS)
        self.code = contract.EXIT_CONFIG if needs_change else contract.EXIT_ENGINE_DIED


def load_secrets(
    paths: SecretPaths, metrics: AccessMetrics, on_weights: Callable[[Mapping[str, float]], None]
) -> SecretFiles:
    """Returns the loaded secrets. Raises StartFailed."""
    try:
        return SecretFiles(paths, metrics, on_weights)
    except FileFault as error:
        reason = contract.REASON_SECRET_NOT_FOUND if error.fault == "missing" else contract.REASON_SECRET_INVALID
        raise StartFailed(reason, str(error)) from error


def check_model(folder: Path) -> None:
    """Checks before any process is spawned that the model folder exists. Raises StartFailed."""
    if not folder.is_dir():
        raise StartFailed(
            contract.REASON_MODEL_NOT_FOUND,
            f"There is no model at {folder}: no such folder. Give a folder with config.json, *.safetensors and "
            "tokenizer.json, or make a small one with `sluice model tiny DIR`.",
        )
    if not (folder / "config.json").is_file():
        raise StartFailed(
            contract.REASON_MODEL_NOT_FOUND,
            f"There is no model at {folder}: the folder has no config.json. A model folder has config.json, "
            "*.safetensors and tokenizer.json.",
        )


def write_termination_message(reason: str, message: str) -> None:
    """Writes the reason for the operator to the file named by the pod's environment. Does nothing without that
    variable.
    """
    path = os.environ.get(contract.ENV_TERMINATION_MESSAGE)
    if not path:
        return
    try:
        Path(path).write_bytes(orjson.dumps({"reason": reason, "message": message[:3000]}))
    except OSError as error:
        log.warning("the termination message could not be written: %s", error)
