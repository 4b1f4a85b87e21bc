"""How many requests any schedule can serve well, at most: a linear program's dual, which needs no search to be true.

Let engine time cost λ(t) ≥ 0 per second, and let being slower than the inter-token target cost μ ≥ 0 per sequence and
second. Take any schedule over R engines and the set G of requests that it serves well.

1. Nothing is charged for more time than there is: Σ_steps ∫λ ≤ R·∫λ.
2. A good request's tokens come within itl·(output − 1) of its first. N(s) being the good requests between their first
   token and their last while step s runs, and T(s) its seconds, Σ_s N(s)·T(s) ≤ itl·Σ_G (output − 1).

A step with n of G's rows in it has N(s) ≥ n and takes T(s) ≥ base + Σ rows' own + Σ prompts' own seconds (the step-time
model). So its charge ∫λ + μ·N·T is at least, shared among its rows, at the least λ while it runs,

    f(λ) = min over 1 ≤ n ≤ most of  λ·base/n + μ·base + (λ + μ·n)·own          for each row, and λ·own for a prompt.

Whatever is computed for request i is computed between its arrival and its last due moment, its prompt before the first
due moment: with the least λ in those windows i costs at least c_i, and pays μ·itl·(output − 1) back. Together

    |G| ≤ R·∫λ + Σ_G (1 − c_i) ≤ R·∫λ + Σ_all max(0, 1 − c_i)          for every λ ≥ 0 and μ ≥ 0.

Any prices give a bound; a subgradient method looks for those that give a low one. Left out, so that the bound cannot
be reached: memory, whole steps, prompts that delay the streams beside them, and who arrives next. Prompts are taken to
share nothing.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from sluice_law.steptime import StepTimeModel
from sluice_sim.record import Record

SLOT: Final = 5.0  # seconds that have one price
ROUNDS: Final = 400
STRIDE: Final = 0.1  # of a price's logarithm, in the first rounds
FADES: Final = (0.9, 0.999)  # how long Adam remembers gradients and their squares (Kingma and Ba, 2015)
Values = NDArray[np.float64]
Places = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Engines:
    """What serves: so many engines, what their steps take, and the sequences of one step at most."""

    replicas: int
    model: StepTimeModel
    most: int


@dataclass(frozen=True, slots=True)
class Promise:
    """What a good request has, seconds."""

    ttft: float
    itl: float


@dataclass(frozen=True, slots=True)
class _Asked:
    """All requests, an entry each: slots, seconds, tokens."""

    arrives: Places
    prompt_due: Places
    due: Places
    prompt: Values  # seconds of its prompt
    tokens: Values  # that follow the first
    own: tuple[Values, Values]  # seconds of the rows that give the second token and the last


def capacity_bound(records: Sequence[Record], engines: Engines, promise: Promise) -> int:
    """Requests that any schedule can serve well, at most. Deterministic."""
    if not records:
        return 0
    asked = _asked(records, engines.model, promise)
    logs = np.full(int(asked.due.max()) + 2, np.log(_usual_price(asked, engines)))  # prices of the slots, and μ
    logs[-1] += np.log(max(engines.model.base, 1e-9) / promise.itl / engines.most)
    mean, square = np.zeros_like(logs), np.zeros_like(logs)
    best = float(len(records))
    for count in range(1, ROUNDS + 1):
        found, slope = _bound(asked, engines, promise, np.exp(logs))
        best = min(best, found)
        slope = slope * np.exp(logs)
        mean = FADES[0] * mean + (1 - FADES[0]) * slope
        square = FADES[1] * square + (1 - FADES[1]) * slope * slope
        stride = STRIDE * (1.0 - count / (ROUNDS + 1.0))
        step = mean / (1 - FADES[0] ** count) / (np.sqrt(square / (1 - FADES[1] ** count)) + 1e-12)
        logs = logs - stride * step
    return int(best + 1e-6)


def _bound(asked: _Asked, engines: Engines, promise: Promise, prices: Values) -> tuple[float, Values]:
    """The bound that these prices prove, and its slope in them. The last price is μ."""
    model, slots, slow = engines.model, prices[:-1], float(prices[-1])
    at_prompt, at_rows = _cheapest(slots, asked.arrives, asked.prompt_due), _cheapest(slots, asked.arrives, asked.due)
    left = 1.0 - slots[at_prompt] * asked.prompt + slow * promise.itl * asked.tokens
    by_slot, by_slow = np.zeros_like(left), promise.itl * asked.tokens
    for own in asked.own:
        price, half = slots[at_rows], asked.tokens / 2.0
        rows = np.clip(np.sqrt(price * model.base / np.maximum(slow * own, 1e-300)), 1.0, float(engines.most))
        left -= half * (price * model.base / rows + slow * model.base + (price + slow * rows) * own)
        by_slot += half * (model.base / rows + own)
        by_slow -= half * (model.base + rows * own)
    good = left > 0.0
    slope = np.full_like(prices, engines.replicas * SLOT)
    slope[:-1] -= np.bincount(at_prompt[good], asked.prompt[good], len(slots))
    slope[:-1] -= np.bincount(at_rows[good], by_slot[good], len(slots))
    slope[-1] = by_slow[good].sum()
    return float(engines.replicas * SLOT * slots.sum() + left[good].sum()), slope


def _asked(records: Sequence[Record], model: StepTimeModel, promise: Promise) -> _Asked:
    arrived = np.array([one.arrived_at for one in records])
    prompt = np.array([float(one.prompt) for one in records])
    tokens = np.array([max(0.0, one.output - 1.0) for one in records])
    due = arrived + promise.ttft

    def slot(times: Values) -> Places:
        return (times / SLOT).astype(np.int64)

    return _Asked(
        arrives=slot(arrived),
        prompt_due=slot(due),
        due=slot(due + promise.itl * tokens),
        prompt=model.prefill_token * prompt + model.prefill_context * prompt * prompt / 2.0,
        tokens=tokens,
        own=(
            model.sequence + model.kv_token * (prompt + 1.0),
            model.sequence + model.kv_token * (prompt + np.maximum(tokens, 1.0)),
        ),
    )


def _usual_price(asked: _Asked, engines: Engines) -> float:
    """One over the seconds of the mean request: where the search for prices begins."""
    rows = asked.tokens * (asked.own[0] + asked.own[1]) / 2.0 + asked.tokens * engines.model.base / engines.most
    return 1.0 / max(float((asked.prompt + rows).mean()), 1e-9)


def _cheapest(prices: Values, first: Places, last: Places) -> Places:
    """Per request, the slot of the least price in [first, last]: a sparse table of minima over powers of two."""
    tables = [np.arange(len(prices))]
    while (span := 1 << len(tables)) <= int((last - first).max()) + 1:
        before = tables[-1]
        here, there = before[: len(prices) - span + 1], before[span // 2 : len(prices) - span // 2 + 1]
        tables.append(np.where(prices[here] <= prices[there], here, there))
    level = np.floor(np.log2(last - first + 1.0)).astype(np.int64)
    found = np.empty_like(first)
    for number, table in enumerate(tables):
        those = level == number
        one, other = table[first[those]], table[last[those] - (1 << number) + 1]
        found[those] = np.where(prices[one] <= prices[other], one, other)
    return found
