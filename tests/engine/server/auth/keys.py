"""Key files for tests. The key of the tenant `x` is `key-of-x`."""

import hashlib
import json
from typing import Any


def key_of(name: str) -> str:
    """The API key of a tenant."""
    return f"key-of-{name}"


def entry(name: str, key: str = "", **fields: Any) -> dict[str, Any]:
    """One entry of a key file."""
    return {"name": name, "sha256": hashlib.sha256((key or key_of(name)).encode()).hexdigest(), **fields}


def key_file(*entries: dict[str, Any]) -> bytes:
    """The file; JSON is YAML."""
    return json.dumps(entries).encode()


def bearer(name: str) -> str:
    """The Authorization header of a tenant."""
    return f"Bearer {key_of(name)}"
