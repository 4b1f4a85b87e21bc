"""Caches the trained model in the user's cache directory, so that a machine trains it only once."""

import fcntl
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from sluice_engine.tiny.recipe import Recipe

if TYPE_CHECKING:
    from sluice_engine.tiny.train import Progress


class NotLearned(Exception):
    """Training reached its time limit before every answer was learned. The message states the remedy."""


def cache_directory(recipe: Recipe) -> Path:
    """The folder of this recipe's and corpus's model: `$XDG_CACHE_HOME/sluice/tiny-<key>`, or under `~/.cache`."""
    base = os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    return Path(base) / "sluice" / f"tiny-{recipe.key()}"


def ensure(
    directory: Path | None = None,
    recipe: Recipe | None = None,
    on_progress: "Callable[[Progress], None] | None" = None,
) -> Path:
    """The trained model's folder. Trains only if the cache has no model, and copies it into `directory` if one is
    given.

    Safe for concurrent processes: one trains, the others wait. Raises NotLearned (nothing is cached), OSError if a
    folder cannot be written, and ImportError if the engine extra is not installed and the cache is empty.
    """
    recipe = recipe or Recipe()
    cached = cache_directory(recipe)
    if not cached.is_dir():
        cached.parent.mkdir(parents=True, exist_ok=True)
        with _locked(cached.with_suffix(".lock")):
            if not cached.is_dir():
                _train_into(cached, recipe, on_progress)
    if directory is None:
        return cached
    shutil.copytree(cached, directory, dirs_exist_ok=True)
    return directory


def _train_into(cached: Path, recipe: Recipe, on_progress: "Callable[[Progress], None] | None") -> None:
    """Train next to the final folder and rename, so that readers never see a partial model."""
    from sluice_engine.tiny.train import train

    with tempfile.TemporaryDirectory(dir=cached.parent, prefix=".tiny-") as scratch:
        made = Path(scratch) / "model"
        last = train(made, recipe, on_progress)
        if not last.learned:
            raise NotLearned(
                f"Training ended after {last.seconds:.0f} s and {last.step} steps with answers still to learn (loss "
                f"{last.loss:.2f}): the machine is too busy or too slow. Try again when it is idle."
            )
        made.rename(cached)


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    with path.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield  # closing the file releases the lock
