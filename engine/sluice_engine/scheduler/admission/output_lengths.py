"""A request's remaining output length, predicted from earlier outputs of its tenant.

Past-Future (Gong et al., ASPLOS'25): the lengths of the last finished requests are the distribution of the next ones,
conditioned on the output so far. There each prediction is drawn at random; here every request keeps one quantile, from a
low-discrepancy sequence over arrivals, so the requests that run together are a stratified sample and a plan depends on
nothing but the past. The quantiles lie above MIN_QUANTILE: a peak that was underestimated costs a preemption, one that was
overestimated only a place for a while (engine/LOG.md has both, measured).
"""

import math
from bisect import bisect_right, insort
from collections import OrderedDict, deque

from sluice_engine.request import Request

MAX_LENGTHS = 512  # lengths per tenant: a few minutes of a busy tenant
MIN_LENGTHS = 32  # lengths before a tenant's own, or all tenants', are used
MAX_TENANTS = 256
MIN_QUANTILE = 0.6
_GOLDEN = (math.sqrt(5.0) - 1.0) / 2.0


class _History:
    """The last MAX_LENGTHS lengths, by time and sorted."""

    def __init__(self) -> None:
        self._recent: deque[int] = deque()
        self.sorted: list[int] = []

    def add(self, length: int) -> None:
        self._recent.append(length)
        insort(self.sorted, length)
        if len(self._recent) > MAX_LENGTHS:
            oldest = self._recent.popleft()
            del self.sorted[bisect_right(self.sorted, oldest) - 1]


class OutputLengths:
    """Output lengths of finished requests, by tenant and of all."""

    def __init__(self) -> None:
        self._all = _History()
        self._tenants: OrderedDict[str, _History] = OrderedDict()  # least recently finished first

    def add(self, tenant: str, length: int) -> None:
        """A request of the tenant finished after `length` output tokens."""
        self._all.add(length)
        history = self._tenants.pop(tenant, None) or _History()
        history.add(length)
        self._tenants[tenant] = history
        if len(self._tenants) > MAX_TENANTS:
            self._tenants.popitem(last=False)

    @property
    def longest(self) -> int:
        """The maximum of all kept lengths; no prediction is above it, or above twice a request's output so far."""
        histories = (self._all, *self._tenants.values())
        return max((history.sorted[-1] for history in histories if history.sorted), default=0)

    def remaining(self, request: Request) -> int | None:
        """Predicted remaining output tokens, at least 1 and at most what max_tokens leaves; None while fewer than MIN_LENGTHS
        lengths are known. An output longer than all known ones is expected to double."""
        history = self._tenants.get(request.tenant, self._all)
        lengths = history.sorted if len(history.sorted) >= MIN_LENGTHS else self._all.sorted
        if len(lengths) < MIN_LENGTHS:
            return None
        written = request.generated
        longer = bisect_right(lengths, written)
        left = len(lengths) - longer
        length = lengths[longer + int(quantile_of(request) * left)] if left else 2 * written
        return max(1, min(length - written, request.max_tokens - written))


def quantile_of(request: Request) -> float:
    """In [MIN_QUANTILE, 1): the golden-ratio sequence over arrivals fills it evenly, whichever of its requests run together."""
    return MIN_QUANTILE + (1.0 - MIN_QUANTILE) * ((request.order * _GOLDEN) % 1.0)
