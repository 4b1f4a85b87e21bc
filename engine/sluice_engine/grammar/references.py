"""What a reference within a JSON schema points to. Standard library only."""

from typing import Any, Final
from urllib.parse import unquote

MAX_INDEX_DIGITS: Final = 10  # of a reference into a list


def target(reference: Any, root: Any) -> Any:
    """The part of the root that `#` or `#/a/b` names; None for other forms, and for what is not there."""
    if not isinstance(reference, str) or (reference != "#" and not reference.startswith("#/")):
        return None
    node = root
    for part in unquote(reference.removeprefix("#")).split("/")[1:]:
        key = part.replace("~1", "/").replace("~0", "~")
        if isinstance(node, dict) and key in node:
            node = node[key]
        elif isinstance(node, list) and len(key) <= MAX_INDEX_DIGITS and key.isdecimal() and int(key) < len(node):
            node = node[int(key)]
        else:
            return None
    return node
