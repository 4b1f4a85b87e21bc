"""What to download: the files of one revision of a model, chosen from the listing of its source. Pure.

Only what the engine reads is chosen: safetensors, the config, the tokenizer and the chat template in the model's root,
and the settings of a sentence-transformers folder. Pickled weights, other formats and examples stay where they are.
"""

import json
from collections.abc import Iterable
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import PurePosixPath
from typing import Final

from sluice import contract
from sluice.models.files import weight_names
from sluice.models.support import unserved
from sluice_engine.sources.errors import SourceError

CONFIG: Final = "config.json"
ADAPTER: Final = "adapter_config.json"
_TEXT: Final = ("*.json", "*.txt", "*.model", "*.jinja", "*.tiktoken")
_NESTED: Final = ("[0-9]_*/config.json", "additional_chat_templates/*.jinja")
_OTHER_WEIGHTS: Final = ("*.bin", "*.pt", "*.pth", "*.h5", "*.msgpack", "*.onnx", "*.gguf")


@dataclass(frozen=True, slots=True)
class RemoteFile:
    """One file of a source."""

    name: str  # relative to the model's root, with forward slashes
    size: int  # bytes
    sha256: str | None = None  # hex; None where the source does not publish one
    etag: str | None = None  # identifies the object's version


@dataclass(frozen=True, slots=True)
class Snapshot:
    """The files of one immutable revision."""

    uri: str
    revision: str
    files: tuple[RemoteFile, ...]

    @property
    def total_bytes(self) -> int:
        """The size of all files."""
        return sum(file.size for file in self.files)


def choose(uri: str, listing: Iterable[RemoteFile], only: str | None = None) -> tuple[RemoteFile, ...]:
    """The files to download, small ones first: a refused config then costs no weights.

    only: the name of a single file (GGUF), which is then the whole choice. Raises SourceError if the source holds no
    model that this engine can load.
    """
    listed = tuple(listing)
    if only is not None:
        found = tuple(file for file in listed if file.name == only)
        if not found:
            raise SourceError(contract.REASON_MODEL_NOT_FOUND, f"{uri}: there is no such file at this revision.")
        return found
    weights = _weights(listed)
    names = {file.name for file in listed}
    if not weights or CONFIG not in names:
        raise _no_model(uri, listed)
    texts = [file for file in listed if _is_text(file.name)]
    return (*sorted(texts, key=lambda file: file.name), *sorted(weights, key=lambda file: file.name))


def _is_text(name: str) -> bool:
    if "/" in name:  # one folder deep; `*` of fnmatch would match a slash, and so a path out of the folder
        parts = name.split("/")
        return any(_matches(parts, pattern.split("/")) for pattern in _NESTED)
    return any(fnmatchcase(name, pattern) for pattern in _TEXT)


def _matches(parts: list[str], patterns: list[str]) -> bool:
    return len(parts) == len(patterns) and all(map(fnmatchcase, parts, patterns))


def _weights(listed: tuple[RemoteFile, ...]) -> list[RemoteFile]:
    chosen = set(weight_names(file.name for file in listed))
    return [file for file in listed if file.name in chosen]


def _no_model(uri: str, listed: tuple[RemoteFile, ...]) -> SourceError:
    names = [file.name for file in listed]
    if ADAPTER in names:
        return SourceError(
            contract.REASON_MODEL_INVALID,
            f"{uri} holds a LoRA adapter without its base model, and adapters are not served. Merge it into its base "
            f"model (peft's merge_and_unload) and serve the result.",
        )
    if not listed:
        return SourceError(contract.REASON_MODEL_NOT_FOUND, f"{uri} holds no files. Check the name and the revision.")
    if CONFIG not in names and _weights(listed):
        return SourceError(
            contract.REASON_MODEL_INVALID, f"{uri} holds no config.json, so its architecture is unknown."
        )
    others = sorted({PurePosixPath(name).suffix for name in names if any(fnmatchcase(name, p) for p in _OTHER_WEIGHTS)})
    what = f"only weights of kind {', '.join(others)}" if others else "no weights"
    remedy = (
        f"Name one GGUF file of it: {uri.partition('@')[0]}/FILE.gguf."
        if ".gguf" in others
        else "Only safetensors are loaded; convert others with save_pretrained(..., safe_serialization=True)."
    )
    return SourceError(contract.REASON_MODEL_INVALID, f"{uri} holds no *.safetensors in its root, {what}. {remedy}")


def check_config(uri: str, text: bytes) -> None:
    """Refuses a config.json of a model that the engine cannot serve, before its weights are downloaded.

    Raises SourceError. Everything else is left to the loader, which knows the architecture.
    """
    try:
        config = json.loads(text)
    except ValueError as error:
        raise SourceError(contract.REASON_MODEL_INVALID, f"The config.json of {uri} is not JSON: {error}.") from error
    if not isinstance(config, dict):
        raise SourceError(contract.REASON_MODEL_INVALID, f"The config.json of {uri} is not a JSON object.")
    if (fault := unserved(config)) is not None:
        raise SourceError(contract.REASON_UNSUPPORTED_ARCHITECTURE, f"{uri} {fault}")
