"""The revision that all pods of a deployment serve, although a branch or the hub's default moves on between two starts.

The operator records the revision of the first ready pod and mounts it as a file; it belongs to one URI and ends with it.
"""

import json
import logging
import re
from dataclasses import replace
from pathlib import Path
from typing import Final

from sluice.models.uri import HubModel, parse_uri

MAX_BYTES: Final = 4096
_COMMIT: Final = re.compile(r"[0-9a-f]{40}", re.ASCII)

log = logging.getLogger("sluice.fetch")


def pinned(uri: str, file: Path | None) -> str:
    """The URI with the commit that `file` records for it; the URI itself without one.

    Only a hub keeps old revisions: for other sources, and for a file that cannot be used, the URI stays as it is.
    """
    model = parse_uri(uri)
    if file is None or not isinstance(model, HubModel):
        return uri
    try:
        with file.open("rb") as content:
            recorded = json.loads(content.read(MAX_BYTES))
        if recorded["uri"] != uri:
            return uri
        if not _COMMIT.fullmatch(recorded["revision"]):
            raise ValueError("its revision is not a commit")
    except FileNotFoundError:  # before the first pod was ready
        return uri
    except (OSError, ValueError, KeyError, TypeError) as error:
        log.warning("%s cannot be used (%s): the revision that %s names now is fetched.", file, error, uri)
        return uri
    return str(replace(model, revision=recorded["revision"]))
