"""The models that have a short name: where each is, and under which licence."""

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

CATALOGUE: Final = Path(__file__).with_suffix(".toml")


@dataclass(frozen=True, slots=True)
class KnownModel:
    """One model in a wheel of a package index."""

    name: str
    title: str
    package: str
    version: str
    sha256: str  # of the wheel, hex
    file: str  # in the wheel: a GGUF file or a model folder
    licence: str  # of the model
    bytes: int  # of the wheel

    @property
    def source(self) -> str:
        """The package, as pip names it."""
        return f"{self.package}=={self.version}"


def known_models(path: Path = CATALOGUE) -> Mapping[str, KnownModel]:
    """The models of a catalogue file, by name."""
    return {name: KnownModel(name, **fields) for name, fields in tomllib.loads(path.read_text("utf-8")).items()}
