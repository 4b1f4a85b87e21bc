"""Parses where a model is: the one reading of a model URI, for the operator, the engine and the command line.

It uses the standard library only, as the wire contract does, because the operator must not import the engine.
"""

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Final

HUB: Final = "hf://"
S3: Final = "s3://"
CLAIM: Final = "pvc://"
FILE: Final = "file://"
FORMS: Final = "hf://org/name@revision, s3://bucket/prefix, pvc://claim/path, file:///path or a folder's path"

_HUB: Final = re.compile(
    r"(?P<repo>[A-Za-z0-9][-A-Za-z0-9._]*/[A-Za-z0-9][-A-Za-z0-9._]*)"
    r"(?P<file>/[^\s@]+\.gguf)?(@(?P<revision>[A-Za-z0-9][-A-Za-z0-9._/]*))?",
    re.ASCII,
)
_BUCKET: Final = re.compile(r"[a-z0-9][-a-z0-9.]{1,61}[a-z0-9]", re.ASCII)
_NAME: Final = re.compile(r"[a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?", re.ASCII)


class UriInvalid(ValueError):
    """The text is no model URI. The message names the valid forms."""


@dataclass(frozen=True, slots=True)
class HubModel:
    """A repository of a Hugging Face hub."""

    repo: str  # org/name
    revision: str | None = None  # a branch, tag or commit; None: the hub's default branch
    file: str | None = None  # one GGUF file in the repository; None: its safetensors

    def __str__(self) -> str:
        file = f"/{self.file}" if self.file else ""
        return f"{HUB}{self.repo}{file}" + (f"@{self.revision}" if self.revision else "")


@dataclass(frozen=True, slots=True)
class S3Model:
    """The objects under a prefix of an S3 bucket, or one GGUF object."""

    bucket: str
    prefix: str  # without a slash at either end; "" is the whole bucket

    def __str__(self) -> str:
        return f"{S3}{self.bucket}/{self.prefix}".rstrip("/")


@dataclass(frozen=True, slots=True)
class ClaimModel:
    """A folder on a PersistentVolumeClaim."""

    claim: str
    path: str  # without a slash at either end; "" is the volume's root

    def __str__(self) -> str:
        return f"{CLAIM}{self.claim}/{self.path}".rstrip("/")


@dataclass(frozen=True, slots=True)
class LocalModel:
    """A folder or a GGUF file on this machine."""

    path: Path

    def __str__(self) -> str:
        return str(self.path)


RemoteModel = HubModel | S3Model
ModelUri = RemoteModel | ClaimModel | LocalModel


def parse_uri(text: str) -> ModelUri:
    """The location that `text` names. Text without a scheme is a path. Raises UriInvalid."""
    if text.startswith(HUB):
        return _hub(text)
    if text.startswith(S3):
        bucket, _, prefix = text.removeprefix(S3).partition("/")
        return S3Model(_checked(_BUCKET, bucket, text), _segments(prefix, text))
    if text.startswith(CLAIM):
        claim, _, path = text.removeprefix(CLAIM).partition("/")
        return ClaimModel(_checked(_NAME, claim, text), _segments(path, text))
    if text.startswith(FILE):
        path = text.removeprefix(FILE)
        if not path.startswith("/"):
            raise UriInvalid(f"{text} has no absolute path: write file:///path/to/model.")
        return LocalModel(Path(path))
    scheme, separator, _ = text.partition("://")
    if not text or separator:
        raise UriInvalid(f"A model is given as {FORMS}" + (f"; {scheme}:// is none of them." if separator else "."))
    return LocalModel(Path(text).expanduser())


def name_of(uri: ModelUri) -> str:
    """The model's short name: that of its repository, folder or bucket."""
    match uri:
        case HubModel(repo):
            return repo.rpartition("/")[2]
        case S3Model(bucket, prefix):
            return prefix.rpartition("/")[2] or bucket
        case ClaimModel(claim, path):
            return path.rpartition("/")[2] or claim
        case LocalModel(path):
            return path.resolve().name


def _hub(text: str) -> HubModel:
    found = _HUB.fullmatch(text.removeprefix(HUB))
    if found is None or "/../" in text or "--" in found["repo"]:
        raise UriInvalid(
            f"{text} is no model of a hub: write hf://org/name or hf://org/name@revision (or hf://org/name/file.gguf)."
        )
    file = found["file"]
    return HubModel(found["repo"], found["revision"], file.removeprefix("/") if file else None)


def _checked(pattern: re.Pattern[str], name: str, text: str) -> str:
    if not pattern.fullmatch(name):
        raise UriInvalid(f"{text} names no valid {'bucket' if pattern is _BUCKET else 'claim'}: write {FORMS}.")
    return name


def _segments(path: str, text: str) -> str:
    """The path without empty segments. Raises UriInvalid for a `..` segment."""
    parts = [part for part in path.split("/") if part]
    if ".." in parts:
        raise UriInvalid(f"{text} must not leave its folder by a .. segment.")
    return "/".join(parts)
