"""The policies that order replicas for a prompt. Each returns a cost per replica; the lowest is tried first.

PrefixAware adds two prices to the predicted time to first token. Computing again what another replica has cached delays the
requests behind it, of which the request's own time says nothing: a second of work on a server that is busy with the share ρ
of its time adds ρ/(1 − ρ) seconds of waiting to others (M/G/1). And waiting is cheap only while it is far from missing the
SLO target: the part of it beyond a third of the target counts four times.
"""

from collections.abc import Callable, Mapping
from typing import Final, Literal, NamedTuple

from sluice_gateway.routing.cache_view import CacheView
from sluice_gateway.routing.first_token import own_prefill_seconds, seconds_to_first_token
from sluice_gateway.routing.values import Prompt, Replica

PolicyName = Literal["PrefixAware", "LeastLoaded", "RoundRobin"]
Cost = Callable[[Replica, Prompt, CacheView], float]


class Routing(NamedTuple):
    """How the requests of one model are routed. `session_header` names the request header by whose value a conversation
    stays on one replica; None: there is none.
    """

    policy: PolicyName = "PrefixAware"
    session_header: str | None = None


# Of a second of computation, in seconds: ρ/(1 − ρ) of a busy fleet, ρ = 0.97. operator/LOG.md has others, measured.
COMPUTATION: Final = 30.0
# Of a replica in another zone, in seconds: more than its round trip of 1 to 2 ms, less than any queue.
OTHER_ZONE: Final = 0.005
LATENESS: Final = 3.0  # of a second beyond FREE_SHARE of the target, besides that second
FREE_SHARE: Final = 1 / 3


def prefix_aware(replica: Replica, prompt: Prompt, caches: CacheView) -> float:
    """Predicted seconds to first token, with the prices of computation, lateness and another zone."""
    cached = caches.cached_tokens(replica.name, prompt)
    own = own_prefill_seconds(replica, prompt.tokens, cached)
    seconds = seconds_to_first_token(replica, prompt.tokens, cached, own)
    if replica.other_zone:
        seconds += OTHER_ZONE
    return seconds + COMPUTATION * own + LATENESS * max(0.0, seconds - FREE_SHARE * replica.ttft_target)


def least_loaded(replica: Replica, _prompt: Prompt, _caches: CacheView) -> float:
    """Requests in flight."""
    return float(replica.requests)


POLICIES: Final[tuple[PolicyName, ...]] = ("PrefixAware", "LeastLoaded", "RoundRobin")
# Under RoundRobin all replicas cost the same, so the turn decides.
COSTS: Final[Mapping[PolicyName, Cost]] = {"PrefixAware": prefix_aware, "LeastLoaded": least_loaded}
