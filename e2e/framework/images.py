"""Builds images and loads them onto the cluster's nodes, each once per run."""

import shlex
import subprocess
import time
from functools import cache

from e2e.framework.cluster import CommandFailed, say
from e2e.framework.settings import ROOT, Settings


@cache
def make(settings: Settings) -> None:
    """Run `make images` and load both images, unless they are there. Raises CommandFailed with the last lines of output.

    Both are built at once, and again in turn if that fails: a builder may install its own parts at its first call.
    """
    if settings.has_images:
        return
    started = time.monotonic()
    names = (f"IMAGE_PREFIX={settings.image_prefix}", f"IMAGE_TAG={settings.image_tag}")
    command = ["make", "images", f"BUILD={shlex.join(settings.build)}", *names]
    try:
        _run([*command, "--jobs=2"])
    except CommandFailed as together:
        say(f"both images at once failed, so in turn: {together}")
        _run(command)
    built = time.monotonic()
    for room in ("operator", "engine"):
        _load(settings, settings.image(room))
    say(f"make images: {built - started:.0f} s, loaded in {time.monotonic() - built:.0f} s")


@cache
def make_client(settings: Settings) -> str:
    """Build and load the image of the official client, and return its name. Raises CommandFailed."""
    started, image = time.monotonic(), settings.image("e2e")
    _run([*settings.build, "-t", image, "-f", "e2e/inpod/Dockerfile", "."])
    _load(settings, image)
    say(f"image {image}: {time.monotonic() - started:.0f} s")
    return image


def _load(settings: Settings, image: str) -> None:
    _run([*settings.load, image])


def _run(command: list[str]) -> None:
    done = subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
    if done.returncode:
        raise CommandFailed(f"{' '.join(command)}: exit {done.returncode}\n{done.stdout[-4000:]}")
