"""What is counted of the requests: what a replica had in its cache, how its revision did, and why it was chosen."""

from sluice import contract
from sluice_gateway.forwarding.offer import Offer
from sluice_gateway.metrics import GatewayMetrics
from sluice_gateway.replicas.fleet import Attempt, Fleet
from sluice_gateway.streaming import Begun


class Accounting:
    """Counts in the metrics, in the requests' log lines and for the fleet."""

    def __init__(self, fleet: Fleet, metrics: GatewayMetrics) -> None:
        self._fleet = fleet
        self._metrics = metrics

    def cache(self, offer: Offer, attempt: Attempt, answer: Begun) -> None:
        """What the answer says of the replica's cache, which also corrects what the gateway thinks of it."""
        tokens = answer.number(contract.HEADER_PROMPT_TOKENS)
        if tokens <= 0.0:
            return
        way, charge = offer.way, offer.charge
        cached = answer.number(contract.HEADER_CACHED_TOKENS)
        self._fleet.answered(attempt, cached, tokens)
        charge.prompt(tokens)
        way.prompt_tokens, way.cached_tokens, way.expected_tokens = tokens, cached, min(attempt.expected, tokens)
        self._metrics.prompt_tokens.inc(tokens)
        self._metrics.cached_tokens.inc(cached)
        self._metrics.expected_tokens.inc(way.expected_tokens)

    def revision(self, offer: Offer, attempt: Attempt, result: str | None) -> None:
        """A request ended at a replica. `result`: of `contract.GATEWAY_REVISION_RESULTS`, None if it says nothing of it."""
        canary = self._fleet.canary(offer.model)
        if canary is not None and result is not None and offer.request.method == "POST":
            is_canary = attempt.state.backend.name in canary.replicas
            self._metrics.revision_answered(contract.GATEWAY_REVISIONS[is_canary], result)

    def choice(self, offer: Offer, attempt: Attempt, tried: int) -> None:
        """A replica answers, the one after `tried` - 1 others."""
        reason = "prefix" if attempt.expected > 0.0 else "load"
        if tried > 1:
            reason = "retry"
        elif offer.prompt.session:
            reason = "session"
        offer.way.chosen_by = reason
        self._metrics.chose(reason)


def result_of(offer: Offer, attempt: Attempt, answer: Begun, complete: bool) -> str | None:
    """Of `contract.GATEWAY_REVISION_RESULTS`; None for a request that the replica refuses as invalid."""
    if not complete or answer.upstream.status >= 500:
        return "error"
    if answer.upstream.status >= 400:
        return None
    load, first = attempt.state.load, offer.way.first_byte_seconds or 0.0
    return "missed" if answer.upstream.is_events and load is not None and first > load.ttft_target else "met"
