"""Prometheus' answer to a range query over the engines' metrics: a measured load as requests.

The metrics have counts and sums, no single requests. Within a step the arrivals are Poisson at the measured rate, with
geometric lengths of the measured means: bursts within a step and heavy tails are not in the metrics.
"""

import math
import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import accumulate, pairwise
from typing import Any, Final

from sluice import contract
from sluice_sim.traces.arrival import Arrival, BadTrace, Load
from sluice_sim.traces.fields import MOST_SECONDS, MOST_TOKENS, as_json, shown
from sluice_sim.traces.lengths import geometric

LABEL: Final = "load"  # the label that names a series without `__name__`, such as a rate
SCHEDULED: Final = f"{contract.QUEUE_SECONDS}_count"
COUNTERS: Final[Mapping[str, str]] = {
    contract.REQUESTS_ARRIVED: "requests",
    SCHEDULED: "scheduled",  # optional: the requests behind the tokens, without the rejected ones
    contract.PROMPT_TOKENS_TOTAL: "prompt_tokens",
    contract.GENERATED_TOKENS: "output_tokens",
}
NEEDED: Final = ("requests", "prompt_tokens", "output_tokens")
LENGTH_SECONDS: Final = 300.0  # mean lengths are taken over this time around a step: outputs end in later steps
MOST_STEPS: Final = 1_000_000
MOST_RATE: Final = 10_000.0  # requests per second


@dataclass(frozen=True, slots=True)
class Series:
    """One time series: `kind` of COUNTERS' values, and its values by time (seconds since 1970)."""

    kind: str
    named: bool  # by `__name__`; otherwise by LABEL
    values: dict[float, float] = field(default_factory=dict)

    def samples(self) -> list[tuple[float, float]]:
        """(time, value) in order of time."""
        return sorted(self.values.items())


@dataclass(frozen=True, slots=True)
class Steps:
    """Amounts per step of `seconds`, from the first step on, for each kind."""

    seconds: float
    amounts: Mapping[str, Sequence[float]]


def prometheus(answers: Sequence[Any], seed: int) -> Load:
    """The load of the answers of `/api/v1/query_range`. Raises BadTrace."""
    series = _all_series(answers)
    counters = _counters(series)
    steps = _steps(series, counters)
    requests = steps.amounts["requests"]
    total = math.fsum(requests)
    if total <= 0:
        raise BadTrace("no request arrived in the range: expected a counter that grows, or a rate above 0")
    prompt, output = _means(steps, "prompt_tokens"), _means(steps, "output_tokens")
    rng, arrivals = random.Random(f"{seed}/prometheus"), list[Arrival]()
    for step, expected in enumerate(requests):
        for at in _poisson(rng, expected, steps.seconds):
            tokens = [min(MOST_TOKENS, geometric(rng, mean)) for mean in (prompt[step], output[step])]
            arrivals.append(Arrival(step * steps.seconds + at, tokens[0], tokens[1]))
    return Load(arrivals, tuple(_notes(steps, counters, len(series))))


def _notes(steps: Steps, counters: bool, count: int) -> Iterator[str]:
    """How the requests were drawn, and the measured means."""
    amounts, seconds = steps.amounts, steps.seconds * len(steps.amounts["requests"])
    totals = {kind: math.fsum(amounts[kind]) for kind in amounts}
    behind = totals.get("scheduled") or totals["requests"]
    yield (
        f"Prometheus: {count} series of {'counters' if counters else 'rates'}, step {steps.seconds:g} s: Poisson "
        f"arrivals at each step's rate, geometric lengths of the means in {LENGTH_SECONDS:g} s around it; bursts within a "
        "step and heavy tails are not in the metrics"
    )
    yield (
        f"measured means: {totals['requests'] / seconds:.3g} requests/s, prompts of "
        f"{totals['prompt_tokens'] / behind:.0f} and outputs of {totals['output_tokens'] / behind:.0f} tokens"
    )
    if "scheduled" not in amounts:
        yield f"mean lengths are per arrived request: too short where requests were rejected; add {SCHEDULED}"


def _all_series(answers: Sequence[Any]) -> list[Series]:
    """The series of all answers; equal ones, of consecutive ranges, become one."""
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
            at, value = (float(one) for one in pair)
        except (TypeError, ValueError, OverflowError):
            at = value = math.nan
        if not (0 <= at < math.inf and 0 <= value < math.inf):
            expected = 'expected [seconds, "number ≥ 0"]'
            raise BadTrace(f"{place}, value {number}: {expected}, found {shown(as_json(pair))}")
        yield at, value


def _counters(series: Sequence[Series]) -> bool:
    """True if the named series are counters: counts are whole numbers, and a rate has a fraction somewhere."""
    named = [one for one in series if one.named]
    return bool(named) and all(value.is_integer() for one in named for value in one.values.values())


def _steps(series: Sequence[Series], counters: bool) -> Steps:
    """Add all series up in steps of the smallest distance between two samples. Raises BadTrace."""
    samples = [(one, one.samples()) for one in series]
    seconds = min((after - at for _, seen in samples for (at, _), (after, _) in pairwise(seen)), default=0.0)
    if seconds <= 0:
        raise BadTrace("expected two samples or more in a series: the distance between them is the step")
    first = min(seen[0][0] for _, seen in samples if seen)
    last = max(seen[-1][0] for _, seen in samples if seen)
    if last - first > MOST_SECONDS or (last - first) / seconds > MOST_STEPS:
        raise BadTrace(
            f"expected a range of a year and {MOST_STEPS} steps at most, found {last - first:.0f} s in {seconds:g} s"
        )
    rates = any(not (one.named and counters) for one in series)
    origin = first - seconds if rates else first
    count = max(1, round((last - origin) / seconds))
    amounts = {one.kind: [0.0] * count for one in series}
    for one, seen in samples:
        spans = _increases(seen, first, seconds) if one.named and counters else _integrals(seen, seconds)
        for end, width, amount in spans:
            steps = max(1, round(width / seconds))
            until = round((end - origin) / seconds)
            for step in range(max(0, until - steps), until):
                amounts[one.kind][step] += amount / steps
    return Steps(seconds, amounts)


Span = tuple[float, float, float]  # (end, width, amount): s, s, requests or tokens


def _increases(seen: Sequence[tuple[float, float]], first: float, seconds: float) -> Iterator[Span]:
    """The increases of a counter. One that begins after `first` began at 0; one that falls was reset to 0."""
    for at, value in seen[:1]:
        if at > first:
            yield at, seconds, value
    for (before, low), (at, value) in pairwise(seen):
        yield at, at - before, value - low if value >= low else value


def _integrals(seen: Sequence[tuple[float, float]], seconds: float) -> Iterator[Span]:
    """A rate times the step that ends at its sample."""
    return ((at, seconds, value * seconds) for at, value in seen)


def _means(steps: Steps, kind: str) -> list[float]:
    """Mean tokens per request of each step, over LENGTH_SECONDS around it; the range's mean without any request."""
    behind, tokens = steps.amounts.get("scheduled", steps.amounts["requests"]), steps.amounts[kind]
    whole = math.fsum(tokens) / (math.fsum(behind) or math.inf)
    reach = int(LENGTH_SECONDS / 2.0 / steps.seconds)
    requests, sums = (list(accumulate(values, initial=0.0)) for values in (behind, tokens))
    found = []
    for step in range(len(tokens)):
        low, high = max(0, step - reach), min(len(tokens), step + reach + 1)
        count = requests[high] - requests[low]
        found.append((sums[high] - sums[low]) / count if count > 1e-9 else whole)
    return found


def _poisson(rng: random.Random, expected: float, seconds: float) -> Iterator[float]:
    """Times in [0, seconds) of a Poisson process with this expected count. Raises BadTrace."""
    if expected > MOST_RATE * seconds:
        raise BadTrace(f"expected at most {MOST_RATE:g} requests per second, found {expected / seconds:g}")
    at = 0.0
    while expected > 0 and (at := at + rng.expovariate(expected / seconds)) < seconds:
        yield at
