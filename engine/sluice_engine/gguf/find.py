"""Finds the GGUF file that a path names."""

import re
from pathlib import Path
from typing import Final

from sluice_engine.errors import ModelInvalid

SUFFIX: Final = ".gguf"
_SPLIT: Final = re.compile(r"-\d{5}-of-\d{5}$")


def find_gguf(path: Path) -> Path | None:
    """The GGUF file itself, or the only one of a folder without safetensors; None where `path` names no GGUF.

    Raises ModelInvalid for a folder with several GGUF files, and for one part of a split file.
    """
    found = _candidate(path)
    if found is not None and _SPLIT.search(found.stem):
        raise ModelInvalid(
            f"{found} is one part of a split GGUF file. Merge the parts with `llama-gguf-split --merge` and name the "
            "merged file."
        )
    return found


def _candidate(path: Path) -> Path | None:
    if path.is_file():
        return path if path.suffix.lower() == SUFFIX else None
    if not path.is_dir() or any(path.glob("*.safetensors")):
        return None
    files = sorted(file for file in path.iterdir() if file.suffix.lower() == SUFFIX and file.is_file())
    if len(files) > 1:
        listed = ", ".join(file.name for file in files[:8]) + (", …" if len(files) > 8 else "")
        raise ModelInvalid(f"{path} holds {len(files)} GGUF files ({listed}). Name one of them, not the folder.")
    return files[0] if files else None
