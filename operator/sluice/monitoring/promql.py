"""Builders of PromQL expressions over the defined metrics. A name without a definition is a KeyError, not an empty panel."""

from collections.abc import Sequence
from dataclasses import dataclass

from sluice import contract
from sluice.metrics import by_name

DEPLOYMENT: tuple[str, ...] = ("namespace", contract.SERIES_LABEL)  # labels of one LLMDeployment's series


@dataclass(frozen=True, slots=True)
class Scope:
    """Which series an expression reads, and over which window it takes rates."""

    selector: str  # label matchers, e.g. namespace="a"; empty: all series
    window: str  # a duration, e.g. 5m

    def series(self, name: str, matchers: str = "") -> str:
        """Return the selector of a metric with further matchers, e.g. `sluice_requests_total{outcome="error"}`."""
        _check(name)
        both = ",".join(part for part in (self.selector, matchers) if part)
        return f"{name}{{{both}}}" if both else name

    def rate(self, name: str, matchers: str = "", by: Sequence[str] = ()) -> str:
        """Return the sum of the rates of a counter, per second."""
        return f"{_sum(by)}(rate({self.series(name, matchers)}[{self.window}]))"

    def rate_per_pod(self, name: str, by: Sequence[str]) -> str:
        """Return the mean over pods of a counter's rate; `by` are labels of the pods. A pod that has gone counts while its
        rate does, so a quotient by a count of pods would jump.
        """
        return f"avg by ({', '.join(by)}) ({self.rate(name, by=(*by, 'pod'))})"

    def total(self, name: str, matchers: str = "", by: Sequence[str] = ()) -> str:
        """Return the sum of a gauge."""
        return f"{_sum(by)}({self.series(name, matchers)})"

    def quantile(self, quantile: float, name: str, by: Sequence[str] = ()) -> str:
        """Return a quantile (0..1) of a histogram, interpolated within its bucket."""
        rates = f"{_sum(('le', *by))}(rate({self.series(f'{name}_bucket')}[{self.window}]))"
        return f"histogram_quantile({quantile:g}, {rates})"

    def mean(self, name: str, by: Sequence[str] = ()) -> str:
        """Return the mean of a histogram's values."""
        return f"{self.rate(f'{name}_sum', by=by)} / {self.rate(f'{name}_count', by=by)}"


def attained(scope: Scope, by: Sequence[str] = ()) -> str:
    """Return the share of ended requests that met the SLO, 0..1, as `spec.slo.attainmentPercent` counts it.

    A rejection that another replica took over is no request of its own; a request that its client abandoned is none. One
    that was rejected before the window and met within it is met without an end, so the quotient is bounded.
    """
    met = scope.rate(contract.SLO_REQUESTS, 'result="met"', by)
    return f"clamp_max({met} / {ended(scope, by)}, 1)"


def ended(scope: Scope, by: Sequence[str] = ()) -> str:
    """Return the ended requests per second, each once."""
    ends = scope.rate(contract.REQUESTS, 'outcome!="abort"', by)
    again = scope.rate(contract.REQUESTS_OFFERED_AGAIN, by=by)
    return f"({ends} - {again} > 0)"


def _sum(by: Sequence[str]) -> str:
    return f"sum by ({', '.join(by)}) " if by else "sum"


def _check(name: str) -> None:
    for suffix in ("_bucket", "_sum", "_count"):
        base = name.removesuffix(suffix)
        if base != name and by_name(base).kind == "histogram":
            return
    by_name(name)
