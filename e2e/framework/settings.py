"""The settings of the suite from the environment: how images are built and loaded, and their names."""

import os
import shlex
import uuid
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]


@dataclass(frozen=True)
class Settings:
    """`build` gets `-t NAME -f DOCKERFILE .`, `load` gets NAME, `outage` gets `stop` or `start` and a component's name.

    All three are commands as lists; an empty `outage` means that there is none. The components are kube-apiserver and
    kubelet. `run` names this run. A continued run finds what an earlier one has left. The API server is away for
    `away_seconds` in the longest story. `has_images`: both images are on the nodes, and are not built.
    """

    build: tuple[str, ...]
    load: tuple[str, ...]
    image_prefix: str
    image_tag: str
    outage: tuple[str, ...] = ()
    run: str = ""
    is_continued: bool = False
    away_seconds: float = 600.0
    has_images: bool = False

    def image(self, room: str) -> str:
        """The full name of an image, e.g. sluice/engine:dev."""
        return f"{self.image_prefix}/{room}:{self.image_tag}"

    @property
    def namespace(self) -> str:
        """The namespace of this run's resources."""
        return f"sluice-e2e-{self.run}"

    @property
    def release(self) -> str:
        """The Helm release, in a namespace of the same name."""
        return f"sluice-system-{self.run}"


def from_environment() -> Settings:
    """BUILD, LOAD, IMAGE_PREFIX, IMAGE_TAG, BUILT, OUTAGE, AWAY and RUN, with the defaults of the Makefile (docker and kind)."""
    earlier = os.environ.get("RUN")
    return Settings(
        build=tuple(shlex.split(os.environ.get("BUILD", "docker build"))),
        load=tuple(shlex.split(os.environ.get("LOAD", "kind load docker-image"))),
        image_prefix=os.environ.get("IMAGE_PREFIX", "sluice"),
        image_tag=os.environ.get("IMAGE_TAG", "dev"),
        outage=tuple(shlex.split(os.environ.get("OUTAGE", ""))),
        run=earlier or uuid.uuid4().hex[:6],
        is_continued=earlier is not None,
        away_seconds=float(os.environ.get("AWAY") or 600),
        has_images=bool(os.environ.get("BUILT")),
    )
