"""Triton's cache with a read-only folder behind it: the kernels that were compiled while the image was built.

A file in Triton's cache lists its group's absolute paths, so a folder that was filled elsewhere needs a reader of its own.
Triton uses this one by TRITON_CACHE_MANAGER=sluice_kernels.image_cache:ImageCache; what the folder lacks is compiled, and
stored in TRITON_CACHE_DIR as always.
"""

import json
import os
from pathlib import Path
from typing import Any, Final

from triton.runtime.cache import FileCacheManager

FOLDER: Final = "SLUICE_KERNELS"  # the variable with the image's folder


class ImageCache(FileCacheManager):
    """The cache of one key."""

    def __init__(self, key: str, **kinds: Any) -> None:
        super().__init__(key, **kinds)
        folder = os.environ.get(FOLDER)
        self._image = None if folder is None or any(kinds.values()) else Path(folder) / key

    def get_group(self, filename: str) -> dict[str, str] | None:
        """The files of a compiled kernel by name, None or empty if there are none."""
        found: dict[str, str] | None = super().get_group(filename)
        return found or self._in_image(filename)

    def _in_image(self, filename: str) -> dict[str, str] | None:
        listing = None if self._image is None else self._image / f"__grp__{filename}"
        if self._image is None or listing is None or not listing.is_file():
            return None
        paths = [self._image / name for name in json.loads(listing.read_text())["child_paths"]]
        return {path.name: str(path) for path in paths} if all(path.is_file() for path in paths) else None
