"""Admin tokens of the engines, derived from one operator key: the operator reads no Secret of a resource.

The key is stored in one Secret in the operator's own namespace. The token of a resource is HMAC-SHA256 (RFC 2104) of
its uid under the key. Every operator with the key derives the same token; a recreated resource gets another one.

Gateways and Prometheus need tokens of reads alone (`sluice.auth.read_tokens`): a second Secret of the release has what they
derive from, and the operator keeps it in step with its key.

A third Secret, the keyring, has the newest keys. When the key was replaced, pods mount tokens of the one before until they are
rolled, a few fleets at a time, and the operator sends them those.
"""

import base64
import hashlib
import hmac
import logging
import secrets
from collections.abc import Mapping, Sequence
from typing import Final

from sluice import contract
from sluice.auth.read_tokens import RELEASE, read_key, read_token
from sluice_operator.cluster.client import ClusterClient, ClusterError, Object

KEY: Final = "key"  # in the Secret
KEY_BYTES: Final = 32  # the output size of SHA-256; a shorter key is rejected
FORBIDDEN: Final = 403
KEYRING: Final = "keys"  # in the keyring: one key a line, in hex, the newest first
MOST_OLD_KEYS: Final = 2

log = logging.getLogger(__name__)


def make_key() -> bytes:
    """Return a new random operator key of `KEY_BYTES` bytes."""
    return secrets.token_bytes(KEY_BYTES)


def derive(key: bytes, uid: str) -> str:
    """Return the admin token of one resource, 64 hex digits. Raises ValueError on a short key or an empty uid."""
    if len(key) < KEY_BYTES or not uid:
        raise ValueError(f"an admin token needs a key of at least {KEY_BYTES} bytes and the resource's uid")
    return hmac.new(key, uid.encode(), hashlib.sha256).hexdigest()


async def operator_key(cluster: ClusterClient, namespace: str, name: str) -> bytes:
    """Read the operator's key from its Secret; create the Secret if it does not exist. Raises ClusterError."""
    found = await cluster.get("Secret", namespace, name)
    if found is None:
        made = {"immutable": True, **_secret(namespace, name, {KEY: make_key()})}
        found = await cluster.create(made) or await cluster.get("Secret", namespace, name)
    if found is None:
        raise ClusterError(f"Secret {namespace}/{name} was deleted while it was read; the operator retries")
    return _key_in(found)


async def existing_key(cluster: ClusterClient, namespace: str, name: str) -> bytes | None:
    """Read the operator's key; None before an operator that leads has made it. Raises ClusterError."""
    found = await cluster.get("Secret", namespace, name)
    return None if found is None else _key_in(found)


async def older_keys(cluster: ClusterClient, namespace: str, name: str, key: bytes) -> tuple[bytes, ...]:
    """Return the keys before this one, the newest first, and write this one into the keyring. Raises ClusterError.

    Without the right to the keyring there is none, as with the roles of an older chart.
    """
    try:
        found = await cluster.get("Secret", namespace, name)
        kept = () if found is None else _keyring_in(found)
        older = tuple(each for each in kept if each != key)[:MOST_OLD_KEYS]
        text = "\n".join(each.hex() for each in (key, *older))
        await _write(cluster, _secret(namespace, name, {KEYRING: text.encode()}), found)
    except ClusterError as error:
        if error.status != FORBIDDEN:
            raise
        log.warning("engines with a token of an earlier key take no limits until they are rolled: %s", error)
        return ()
    return older


async def share_reads(
    cluster: ClusterClient, namespace: str, name: str, key: bytes, older: Sequence[bytes] = ()
) -> None:
    """Write the Secret from which gateways and Prometheus have the tokens of reads, if it is not of these keys.

    Gateways get the older keys too, for engines that have not been rolled. Raises ClusterError.
    """
    of_reads = [read_key(each) for each in (key, *older)]
    entries = {contract.READ_KEY: "\n".join(of_reads), contract.READ_TOKEN_KEY: read_token(of_reads[0], RELEASE)}
    secret = _secret(namespace, name, {entry: value.encode() for entry, value in entries.items()})
    await _write(cluster, secret, await cluster.get("Secret", namespace, name))


async def _write(cluster: ClusterClient, secret: Object, found: Object | None) -> None:
    """Create the Secret, or change the one that was found."""
    where = (secret["metadata"]["namespace"], secret["metadata"]["name"])
    if found is None:
        found = await cluster.create(secret) or await cluster.get("Secret", *where)
    if found is None or (found.get("data") or {}) != secret["data"]:
        await cluster.apply(secret)


def _secret(namespace: str, name: str, entries: Mapping[str, bytes]) -> Object:
    return {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {"name": name, "namespace": namespace},
        "type": "Opaque",
        "data": {entry: base64.b64encode(value).decode() for entry, value in entries.items()},
    }


def _keyring_in(secret: Object) -> tuple[bytes, ...]:
    """The keys of the keyring; what is no key is left out."""
    found = []
    try:
        lines = base64.b64decode((secret.get("data") or {}).get(KEYRING, ""), validate=True).split()
        found = [bytes.fromhex(line.decode("ascii")) for line in lines]
    except ValueError:
        log.warning("the keyring %s cannot be read and is written anew", secret["metadata"]["name"])
    return tuple(each for each in found if len(each) >= KEY_BYTES)


def _key_in(secret: Object) -> bytes:
    metadata = secret["metadata"]
    try:
        key = base64.b64decode((secret.get("data") or {}).get(KEY, ""), validate=True)
    except ValueError:
        key = b""
    if len(key) < KEY_BYTES:
        raise ClusterError(
            f"Secret {metadata['namespace']}/{metadata['name']} has no {KEY!r} of at least {KEY_BYTES} bytes: "
            "delete it; the operator then creates a new one and rolls out every model once, a few at a time"
        )
    return key
