"""Why a model cannot be fetched: a reason of the wire contract, and a sentence with the cause and the remedy."""

import errno
import re
from pathlib import Path
from typing import Final

from sluice import contract
from sluice_engine.sources.progress import size_text

_CREDENTIALS: Final = re.compile(r"://[^\s/?#@]*@")


class SourceError(Exception):
    """The model cannot be fetched. `reason` is a REASON_* of `sluice.contract`.

    `transient`: the same attempt may succeed later without anyone's help. `retry_after`: the seconds that the server
    asked to wait, None if it did not. Credentials within a URL are left out of `message`, which users and logs see.
    """

    def __init__(self, reason: str, message: str, *, transient: bool = False, retry_after: float | None = None) -> None:
        self.message = _CREDENTIALS.sub("://", message)
        super().__init__(self.message)
        self.reason = reason
        self.transient = transient
        self.retry_after = retry_after


def disk_full(folder: Path, needed: int, free: int) -> SourceError:
    """The error for a file system without room for `needed` more bytes."""
    return SourceError(
        contract.REASON_DISK_FULL,
        f"The model needs {size_text(needed)} more in {folder}, and {size_text(free)} are free. Enlarge the volume, "
        f"choose another cache, or remove models with `sluice model rm`.",
    )


def write_failed(folder: Path, error: OSError) -> SourceError:
    """The error for a failed write to the cache."""
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return SourceError(
            contract.REASON_DISK_FULL,
            f"The disk of {folder} became full during the download. Enlarge the volume, choose another cache, or remove "
            f"models with `sluice model rm`; the download then continues where it stopped.",
        )
    remedy = "Check its permissions (a pod writes as user 65532)."
    if error.errno == errno.EROFS:
        remedy = "It is mounted read-only and does not hold the model: mount it writable once, or choose another cache."
    elif error.errno in (errno.EEXIST, errno.ENOTDIR):
        remedy = "A file is in the place of a folder: choose another cache, or remove the file."
    return SourceError(
        contract.REASON_DOWNLOAD_FAILED, f"The cache {folder} cannot be written ({error.strerror}). {remedy}"
    )


def stalled(uri: str, seconds: float) -> SourceError:
    """The error for a transfer that received next to nothing for `seconds`."""
    return SourceError(
        contract.REASON_DOWNLOAD_STALLED,
        f"The download of {uri} received no data for {seconds:.0f} s. It continues where it stopped; if this repeats, "
        f"check the network or use a mirror (HF_ENDPOINT, AWS_ENDPOINT_URL).",
        transient=True,
    )
