"""The time series in Prometheus' answers to range queries."""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from sluice import contract
from sluice_sim.traces.arrival import BadTrace
from sluice_sim.traces.fields import as_json, shown

LABEL: Final = "load"  # the label that names a series without `__name__`, such as a rate
SCHEDULED: Final = f"{contract.QUEUE_SECONDS}_count"
COUNTERS: Final[Mapping[str, str]] = {
    contract.REQUESTS_ARRIVED: "requests",
    SCHEDULED: "scheduled",  # optional: the requests behind the tokens, without the rejected ones
    contract.PROMPT_TOKENS_TOTAL: "prompt_tokens",
    contract.GENERATED_TOKENS: "output_tokens",
}
NEEDED: Final = ("requests", "prompt_tokens", "output_tokens")
MOST_VALUE: Final = 1e18  # of a counter or a rate


@dataclass(frozen=True, slots=True)
class Series:
    """One time series: `kind` of COUNTERS' values, and its values by time (seconds since 1970)."""

    kind: str
    named: bool  # by `__name__`; otherwise by LABEL
    values: dict[float, float] = field(default_factory=dict)

    def samples(self) -> list[tuple[float, float]]:
        """(time, value) in order of time."""
        return sorted(self.values.items())


def all_series(answers: Sequence[Any]) -> list[Series]:
    """The series of all answers; equal ones, of consecutive ranges, become one. Raises BadTrace."""
    found: dict[tuple[tuple[str, str], ...], Series] = {}
    for place, result in _results(answers):
        metric = result.get("metric")
        if not isinstance(metric, dict) or not all(isinstance(value, str) for value in metric.values()):
            raise BadTrace(f"{place}, field metric: expected labels, found {shown(as_json(metric))}")
        one = found.setdefault(tuple(sorted(metric.items())), _series(metric, place))
        one.values.update(_samples(result, place))
    kinds = {one.kind for one in found.values()}
    for kind in NEEDED:
        if kind not in kinds:
            name = next(name for name, of in COUNTERS.items() if of == kind)
            raise BadTrace(f"expected a series with __name__ {name} or {LABEL}={kind}, found none")
    return list(found.values())


def _results(answers: Sequence[Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    """(place, result) of the answers of the HTTP API, of their `data`, or of lists of results. Raises BadTrace."""
    number = 0
    for answer in answers:
        results = answer
        if isinstance(answer, dict):
            if answer.get("status", "success") != "success":
                raise BadTrace(f"field status: expected success, found {shown(as_json(answer.get('error')))}")
            data = answer.get("data", answer)
            form = data.get("resultType") if isinstance(data, dict) else None
            if form != "matrix":
                raise BadTrace(f"field resultType: expected matrix (of query_range), found {shown(as_json(form))}")
            results = data.get("result")
        if not isinstance(results, list):
            raise BadTrace(f"field result: expected a list of series, found {shown(as_json(results))}")
        for result in results:
            number += 1
            if not isinstance(result, dict):
                raise BadTrace(f"result {number}: expected an object, found {shown(as_json(result))}")
            yield f"result {number}", result


def _series(metric: Mapping[str, str], place: str) -> Series:
    label, name = metric.get(LABEL), metric.get("__name__", "")
    if label in COUNTERS.values():
        return Series(str(label), named=False)
    if name in COUNTERS:
        return Series(COUNTERS[name], named=True)
    raise BadTrace(
        f"{place}, field metric: expected __name__ {', '.join(COUNTERS)}, or the label {LABEL} with "
        f"{', '.join(COUNTERS.values())}, found {as_json(dict(metric))[:200]}"
    )


def _samples(result: dict[str, Any], place: str) -> Iterator[tuple[float, float]]:
    values = result.get("values")
    if not isinstance(values, list):
        raise BadTrace(f"{place}, field values: expected a list of [seconds, value], found {shown(as_json(values))}")
    for number, pair in enumerate(values, start=1):
        try:
            at, value = (float(one) for one in (pair if isinstance(pair, list) else ()))
        except (TypeError, ValueError, OverflowError):
            at = value = math.nan
        if not (0 <= at < math.inf and 0 <= value <= MOST_VALUE):
            expected = 'expected [seconds, "number ≥ 0"]'
            raise BadTrace(f"{place}, value {number}: {expected}, found {shown(as_json(pair))}")
        yield at, value


def are_counters(series: Sequence[Series]) -> bool:
    """True if the named series are counters: counts are whole numbers, and a rate has a fraction somewhere."""
    named = [one for one in series if one.named]
    return bool(named) and all(value.is_integer() for one in named for value in one.values.values())
