"""A load that Prometheus measured, as requests.

The metrics have counts and sums, no single requests. Within a step the arrivals are Poisson at the measured rate, with
geometric lengths of the measured means: bursts within a step and heavy tails are not in the metrics.
"""

import math
import random
from collections.abc import Iterator, Sequence
from itertools import accumulate
from typing import Any, Final

from sluice_sim.traces.arrival import Arrival, BadTrace, Load
from sluice_sim.traces.fields import MOST_TOKENS
from sluice_sim.traces.lengths import geometric
from sluice_sim.traces.prometheus.series import SCHEDULED, all_series, are_counters
from sluice_sim.traces.prometheus.steps import Steps, added_up

LENGTH_SECONDS: Final = 300.0  # mean lengths are taken over this time around a step: outputs end in later steps
MOST_RATE: Final = 10_000.0  # requests per second


def prometheus(answers: Sequence[Any], seed: int) -> Load:
    """The load of the answers of `/api/v1/query_range`. Raises BadTrace."""
    series = all_series(answers)
    counters = are_counters(series)
    steps = added_up(series, counters)
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
