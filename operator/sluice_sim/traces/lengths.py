"""Traces with request lengths but without arrival times: Vidur's (MIT). The times are drawn at `--rate`."""

import math
import random
from collections.abc import Iterator, Sequence
from typing import Final

from sluice_sim.traces.arrival import Arrival
from sluice_sim.traces.fields import table, tokens_of

COLUMNS: Final = ("num_prefill_tokens", "num_decode_tokens")


def vidur(lines: Iterator[str], header: Sequence[str]) -> tuple[tuple[int, int], ...]:
    """(prompt, output) of each line, in tokens. Raises BadTrace."""
    return tuple(
        (tokens_of(prompt, line, COLUMNS[0]), tokens_of(output, line, COLUMNS[1]))
        for line, (prompt, output) in table(lines, header, COLUMNS)
    )


def drawn(lengths: Sequence[tuple[int, int]], rate: float, seconds: float, seed: int) -> Iterator[Arrival]:
    """Poisson arrivals at `rate` per second for `seconds`, each with (prompt, output) drawn from `lengths`."""
    rng, at = random.Random(f"{seed}/lengths"), 0.0
    while (at := at + rng.expovariate(rate)) < seconds:
        yield Arrival(at, *lengths[rng.randrange(len(lengths))])


def poisson(rate: float, seconds: float, prompt: int, output: int, seed: int) -> tuple[Arrival, ...]:
    """Poisson arrivals at `rate` per second, with constant prompt lengths and exponential output lengths."""
    rng, at, arrivals = random.Random(seed), 0.0, []
    while (at := at + rng.expovariate(rate)) < seconds:
        arrivals.append(Arrival(at, prompt, max(1, round(rng.expovariate(1.0 / output)))))
    return tuple(arrivals)


def geometric(rng: random.Random, mean: float) -> int:
    """Draw a number of tokens ≥ 1 from the geometric distribution with this mean; 1 for a mean of 1 or less."""
    return 1 if mean <= 1.0 else 1 + int(math.log(1.0 - rng.random()) / math.log1p(-1.0 / mean))
