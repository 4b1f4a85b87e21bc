"""What a replica's answers show against what it has published: how late its first bytes are, and whether it fails requests.

A load document is the replica's own statement, and a wrong one may be plausible: an idle replica with a fast step-time model
gets every request. The first bytes of its streams contradict it. And a replica that fails each request at once is idle
indeed, so that it would get more of them than the others, and all of them while the others are busy.
"""

from dataclasses import dataclass
from math import inf
from typing import Final

SMOOTHED: Final = 32  # requests over which the ratio is a mean; the weight of one falls to 1/e over as many later ones
ENOUGH: Final = 16  # requests before the ratio counts: a burst that starts between two scrapes has fewer
# Of a prediction, in seconds: a document is up to one scrape (0.25 s) old, and predicts nothing finer.
LEAST_SECONDS: Final = 0.25
# Observed over predicted time to first byte, from which the document is not used. A replica that has become three times as
# slow (the bench's skew) is 3 until its model follows; two gateways that send to it between two scrapes double that.
# Halved, honest replicas lose their load in bursts; doubled, a wrong document keeps all traffic until streams begin 4 s late.
CONTRADICTED: Final = 8.0
AGREES: Final = 4.0  # below which it is used again
FAILURES: Final = 5  # in sequence from which they count, Envoy's `consecutive_5xx`: one bad request is no bad replica
# For which it gets no requests then, while another replica is there; after them one more failure is enough. Halved, twice as
# many requests fail until it is replaced; doubled, one that has recovered is avoided for longer. Envoy begins with 30 s.
FAILING_SECONDS: Final = 10.0


@dataclass(slots=True)
class AnswerRecord:
    """Of one replica. `is_contradicted`: its published load is not to be used. Times are monotonic, in seconds."""

    is_contradicted: bool = False
    _count: int = 0
    _observed: float = 0.0
    _predicted: float = 0.0
    _failures: int = 0  # since the last success
    _failed_at: float = -inf

    @property
    def ratio(self) -> float:
        """Observed over predicted time to first byte, of the latest streams; 1 before the first."""
        return self._observed / self._predicted if self._predicted > 0.0 else 1.0

    def first_byte(self, predicted: float, observed: float) -> bool:
        """A stream has begun. Returns True if `is_contradicted` has changed by it."""
        kept = 1.0 - 1.0 / SMOOTHED
        self._count += 1
        self._observed = kept * self._observed + observed
        self._predicted = kept * self._predicted + max(predicted, LEAST_SECONDS)
        before = self.is_contradicted
        if before:
            self.is_contradicted = self.ratio >= AGREES
        else:
            self.is_contradicted = self._count >= ENOUGH and self.ratio > CONTRADICTED
        return self.is_contradicted is not before

    def failed(self, now: float) -> bool:
        """The replica has answered with an error of its own. Returns True if it is failing by it."""
        self._failures, self._failed_at = self._failures + 1, now
        return self._failures == FAILURES

    def succeeded(self) -> None:
        """The replica has answered with anything else."""
        self._failures = 0

    def is_failing(self, now: float) -> bool:
        """Whether requests should go elsewhere."""
        return self._failures >= FAILURES and now - self._failed_at < FAILING_SECONDS
