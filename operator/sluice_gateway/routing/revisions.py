"""The revision that a request goes to while a model has a canary: by weight, and the same for all requests of a session.

The policy then chooses the replica within the revision. Where no replica of it can serve, the request falls back to the
other one; only that, not a full queue, sends more requests to a canary than its weight: a revision that fails fast always
has room.
"""

import hashlib
from collections.abc import Sequence
from typing import Final, NamedTuple

from sluice_gateway.routing.values import Replica

NEVER: Final = 1.0  # a draw that chooses the stable revision at every weight below 100 %


class Canary(NamedTuple):
    """The canary revision of a model: its share of the requests, 0 to 1, and the names of its replicas."""

    share: float
    replicas: frozenset[str]


def draw_of(session: str) -> float:
    """The draw of a session, 0 to 1, uniform over sessions. A growing share moves sessions in one direction only."""
    digest = hashlib.blake2b(session.encode("utf-8", "surrogateescape"), digest_size=6, person=b"revision")
    return int.from_bytes(digest.digest()) / 2.0**48


def chooses_canary(canary: Canary, draw: float) -> bool:
    """Whether a request with this draw is for the canary."""
    return draw < canary.share


def by_revision(replicas: Sequence[Replica], canary: Canary, draw: float) -> list[list[Replica]]:
    """The replicas in groups, of which the policy orders each; the first group is tried first.

    A revision without a ready replica comes last. The canary is left out for requests that the stable revision serves.
    """
    trial = [one for one in replicas if one.name in canary.replicas]
    stable = [one for one in replicas if one.name not in canary.replicas]
    if chooses_canary(canary, draw):
        return [trial, stable] if any(one.ready for one in trial) else [stable, trial]
    return [stable] if any(one.ready for one in stable) else [trial, stable]
