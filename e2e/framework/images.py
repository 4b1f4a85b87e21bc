"""Builds an image and loads it onto the cluster's nodes."""

import subprocess
import time

from e2e.framework.cluster import CommandFailed, say
from e2e.framework.settings import ROOT, Settings


def build_and_load(settings: Settings, room: str) -> None:
    """Build and load the image of the operator or the engine. Raises CommandFailed with the last lines of output."""
    started = time.monotonic()
    image = settings.image(room)
    _run([*settings.build, "-t", image, "-f", f"{room}/Dockerfile", "."])
    built = time.monotonic()
    load(settings, image)
    say(f"image {image}: built in {built - started:.0f} s, loaded in {time.monotonic() - built:.0f} s")


def load(settings: Settings, image: str) -> None:
    """Load a built image onto the cluster's nodes. Raises CommandFailed."""
    _run([*settings.load, image])


def _run(command: list[str]) -> None:
    done = subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
    if done.returncode:
        raise CommandFailed(f"{' '.join(command)}: exit {done.returncode}\n{done.stdout[-4000:]}")
