"""Sticky sessions by rendezvous hashing (Thaler and Ravishankar, 1998): no table, so no memory and nothing to share.

Every gateway sends a session to the same replica, and a change of the fleet moves only the sessions of what changed.
"""

import hashlib


def affinity(session: str, replica: str) -> int:
    """The replica of the highest affinity is the session's."""
    digest = hashlib.blake2b(repr((session, replica)).encode("utf-8", "surrogateescape"), digest_size=8)
    return int.from_bytes(digest.digest())
