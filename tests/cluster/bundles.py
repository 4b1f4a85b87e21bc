"""Reads what `sluice report` has written."""

import tarfile
from pathlib import Path


def bundle(file: Path) -> dict[str, str]:
    """The files of the bundle by name, without the common folder."""
    with tarfile.open(file) as archive:
        found = {}
        for member in archive.getmembers():
            body = archive.extractfile(member)
            assert body is not None
            found[member.name.partition("/")[2]] = body.read().decode()
        return found
