"""Writes parts as a gzipped tar file that only its owner can read."""

import io
import os
import re
import tarfile
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from sluice.cluster.report.parts import Part


async def write(parts: AsyncIterator[Part], file: Path, now: float) -> int:
    """Write the parts into a folder named as the file; returns their number. `now`: seconds since 1970.

    Raises FileExistsError if the file exists and OSError if it cannot be written. After any error there is no file.
    """
    folder = re.sub(r"\.(tar\.gz|tgz|tar|gz)$", "", file.name)
    count = 0
    with _new_file(file) as raw, tarfile.open(fileobj=raw, mode="w:gz") as archive:
        async for part in parts:
            body = part.text.encode()
            entry = tarfile.TarInfo(f"{folder}/{part.path}")
            entry.size, entry.mtime, entry.mode = len(body), int(now), 0o600
            archive.addfile(entry, io.BytesIO(body))
            count += 1
    return count


@contextmanager
def _new_file(file: Path) -> Iterator[IO[bytes]]:
    """A file that did not exist, open for writing; removed if the block raises."""
    descriptor = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        with os.fdopen(descriptor, "wb") as raw:
            yield raw
    except BaseException:
        file.unlink(missing_ok=True)
        raise
