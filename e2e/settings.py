"""What the suite is told from outside: how images are built and loaded, and what they are called."""

import os
import shlex
import uuid
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).parents[1]


@dataclass(frozen=True)
class Settings:
    """`build` gets `-t NAME -f DOCKERFILE .`, `load` gets NAME; both are commands as lists. `run` names this run."""

    build: tuple[str, ...]
    load: tuple[str, ...]
    image_prefix: str
    image_tag: str
    run: str = field(default_factory=lambda: uuid.uuid4().hex[:6])

    def image(self, room: str) -> str:
        """The full name of an image, e.g. sluice/engine:dev."""
        return f"{self.image_prefix}/{room}:{self.image_tag}"

    @property
    def namespace(self) -> str:
        """Where the resources of this run live."""
        return f"sluice-e2e-{self.run}"

    @property
    def release(self) -> str:
        """The Helm release, in a namespace of the same name."""
        return f"sluice-system-{self.run}"


def from_environment() -> Settings:
    """BUILD, LOAD, IMAGE_PREFIX and IMAGE_TAG, with the defaults of the Makefile (docker and kind)."""
    return Settings(
        build=tuple(shlex.split(os.environ.get("BUILD", "docker build"))),
        load=tuple(shlex.split(os.environ.get("LOAD", "kind load docker-image"))),
        image_prefix=os.environ.get("IMAGE_PREFIX", "sluice"),
        image_tag=os.environ.get("IMAGE_TAG", "dev"),
    )
