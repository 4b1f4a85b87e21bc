"""An upper bound on the good requests of any schedule: a linear program's dual, valid without any search.

Let engine time cost λ(t) ≥ 0 per second, and let exceeding the inter-token target cost μ ≥ 0 per sequence and second.
Take any schedule over R engines and the set G of requests that it serves within their targets.

1. The charge covers no more time than exists: Σ_steps ∫λ ≤ R·∫λ.
2. A good request's tokens arrive within itl·(output − 1) of its first. Let N(s) be the number of good requests between
   their first and last token while step s runs, and T(s) its seconds: Σ_s N(s)·T(s) ≤ itl·Σ_G (output − 1).

A step with n of G's rows in it has N(s) ≥ n and takes T(s) ≥ base + Σ rows' own + Σ prompts' own seconds (the step-time
model). Its charge ∫λ + μ·N·T, divided among its rows, is therefore at least, with the least λ while the step runs,

    f(λ) = min over 1 ≤ n ≤ most of  λ·base/n + μ·base + (λ + μ·n)·own          for each row, and λ·own for a prompt.

All work for request i is done between its arrival and its last due time, and its prompt before the first due time. With
the least λ in those windows, i costs at least c_i, and returns μ·itl·(output − 1). Together

    |G| ≤ R·∫λ + Σ_G (1 − c_i) ≤ R·∫λ + Σ_all max(0, 1 − c_i)          for every λ ≥ 0 and μ ≥ 0.

Any prices give a valid bound; a subgradient method searches for prices that give a low one. The bound is not
attainable, because it ignores memory, the granularity of steps, the delay that prompts cause to concurrent streams, and
the order of future arrivals. Prompts are assumed to share nothing.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from sluice_perfmodel.step_time import StepTimeModel
from sluice_sim.cluster.request import RequestRecord

SLOT: Final = 5.0  # seconds with one price
ROUNDS: Final = 400
STRIDE: Final = 0.1  # step in a price's logarithm in the first rounds
FADES: Final = (0.9, 0.999)  # Adam's decay rates of the gradient's first and second moments (Kingma and Ba, 2015)
Values = NDArray[np.float64]
Places = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Engines:
    """The serving capacity: the number of engines, their step-time model, and the most sequences in one step."""

    replicas: int
    model: StepTimeModel
    most: int


@dataclass(frozen=True, slots=True)
class SloTargets:
    """The SLO targets of a good request, seconds."""

    ttft: float
    itl: float


@dataclass(frozen=True, slots=True)
class _Requests:
    """All requests as arrays with one entry per request: slots, seconds, tokens."""

    arrives: Places
    prompt_due: Places
    due: Places
    prompt: Values  # seconds of compute for its prompt
    tokens: Values  # tokens after the first
    own: tuple[Values, Values]  # seconds of the rows that compute the second and the last token


def capacity_bound(records: Sequence[RequestRecord], engines: Engines, slo: SloTargets) -> int:
    """Upper bound on the good requests of any schedule. Deterministic."""
    if not records:
        return 0
    asked = _asked(records, engines.model, slo)
    # logarithms of the slots' prices, and of μ
    logs = np.full(int(asked.due.max()) + 2, np.log(_usual_price(asked, engines)))
    logs[-1] += np.log(max(engines.model.base, 1e-9) / slo.itl / engines.most)
    mean, square = np.zeros_like(logs), np.zeros_like(logs)
    best = float(len(records))
    for count in range(1, ROUNDS + 1):
        found, slope = _bound(asked, engines, slo, np.exp(logs))
        best = min(best, found)
        slope = slope * np.exp(logs)
        mean = FADES[0] * mean + (1 - FADES[0]) * slope
        square = FADES[1] * square + (1 - FADES[1]) * slope * slope
        stride = STRIDE * (1.0 - count / (ROUNDS + 1.0))
        step = mean / (1 - FADES[0] ** count) / (np.sqrt(square / (1 - FADES[1] ** count)) + 1e-12)
        logs = logs - stride * step
    return int(best + 1e-6)


def _bound(asked: _Requests, engines: Engines, slo: SloTargets, prices: Values) -> tuple[float, Values]:
    """The bound that these prices prove, and its gradient in them. The last price is μ."""
    model, slots, slow = engines.model, prices[:-1], float(prices[-1])
    at_prompt, at_rows = _cheapest(slots, asked.arrives, asked.prompt_due), _cheapest(slots, asked.arrives, asked.due)
    left = 1.0 - slots[at_prompt] * asked.prompt + slow * slo.itl * asked.tokens
    by_slot, by_slow = np.zeros_like(left), slo.itl * asked.tokens
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


def _asked(records: Sequence[RequestRecord], model: StepTimeModel, slo: SloTargets) -> _Requests:
    arrived = np.array([one.arrived_at for one in records])
    prompt = np.array([float(one.prompt) for one in records])
    tokens = np.array([max(0.0, one.output - 1.0) for one in records])
    due = arrived + slo.ttft

    def slot(times: Values) -> Places:
        return (times / SLOT).astype(np.int64)

    return _Requests(
        arrives=slot(arrived),
        prompt_due=slot(due),
        due=slot(due + slo.itl * tokens),
        prompt=model.prefill_token * prompt + model.prefill_context * prompt * prompt / 2.0,
        tokens=tokens,
        own=(
            model.sequence + model.kv_token * (prompt + 1.0),
            model.sequence + model.kv_token * (prompt + np.maximum(tokens, 1.0)),
        ),
    )


def _usual_price(asked: _Requests, engines: Engines) -> float:
    """The reciprocal of the mean request's seconds: the initial value of the price search."""
    rows = asked.tokens * (asked.own[0] + asked.own[1]) / 2.0 + asked.tokens * engines.model.base / engines.most
    return 1.0 / max(float((asked.prompt + rows).mean()), 1e-9)


def _cheapest(prices: Values, first: Places, last: Places) -> Places:
    """Per request, the slot of the least price in [first, last], from a sparse table of minima over powers of two."""
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
