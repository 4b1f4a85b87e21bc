"""The fast loop, first period by period, then closed around a paced toy engine that steps, chunks and decodes."""

import random
from dataclasses import dataclass, field, replace

import pytest

from sluice_perfmodel.concurrency_limit import EngineLoad, LimitState, LimitTargets, next_limit, predicted_itl, slowed
from sluice_perfmodel.step_time import StepTimeModel, StepWork

MODEL = StepTimeModel(base=0.03, prefill_token=0.0002, sequence=0.004, kv_token=2e-6, steps=1000)
TARGETS = LimitTargets(minimum=2, maximum=64, itl=0.1, kv_watermark=0.9)
LOAD = EngineLoad(
    running=8,
    waiting=0,
    mean_context=200,
    prefill_rate=500,
    prefill_context_rate=0,
    observed_itl=0.075,
    kv_tokens_total=100_000,
    kv_tokens_held=1_600,
    growth_per_sequence=50,
    mean_itl=predicted_itl(MODEL, 8, 200, 0.1),
)


def settle(load: EngineLoad, start: int = 64, targets: LimitTargets = TARGETS) -> tuple[int, str]:
    """The limit after a minute of the same load."""
    state, binding = LimitState(limit=start), ""
    for _ in range(60):
        state, binding = next_limit(state, MODEL, load, targets)
    return state.limit, binding


def test_with_a_model_of_few_steps_the_limit_is_the_maximum() -> None:
    for cold in (None, replace(MODEL, steps=3)):
        state, binding = next_limit(LimitState(limit=5), cold, LOAD, TARGETS)
        assert (state.limit, binding) == (64, "cold")


def test_inter_token_time_at_the_limit_meets_its_target() -> None:
    limit, binding = settle(LOAD)
    assert binding == "itl"
    assert predicted_itl(MODEL, limit, 200, 0.1) <= 0.1 < predicted_itl(MODEL, limit + 4, 200, 0.1)


def test_more_prompt_work_lowers_the_limit_and_less_raises_it() -> None:
    heavy = LOAD._replace(prefill_rate=2_000, mean_itl=predicted_itl(MODEL, 8, 200, 0.4))
    light = LOAD._replace(prefill_rate=250, mean_itl=predicted_itl(MODEL, 8, 200, 0.05))
    assert settle(heavy)[0] < settle(LOAD)[0] < settle(light)[0]


def test_an_engine_slower_than_its_model_gets_a_lower_limit() -> None:
    slower = LOAD._replace(mean_itl=predicted_itl(MODEL, 8, 200, 0.1) * 1.5)
    assert settle(slower)[0] < settle(LOAD)[0]


def after(seconds: int, slower: float) -> LimitState:
    """The state when tokens have taken so many times what the model says for so long."""
    state, load = LimitState(limit=8), LOAD._replace(mean_itl=slower * predicted_itl(MODEL, 8, 200, 0.1))
    for _ in range(seconds):
        state, _ = next_limit(state, MODEL, load, TARGETS)
    return state


@pytest.mark.parametrize(("slower", "told"), [(0.7, 1.0), (1.0, 1.0), (1.08, 1.0), (1.3, 1.3), (9.0, 3.0)])
def test_the_published_model_is_slowed_after_minutes_of_slow_steps_and_never_sped_up(
    slower: float, told: float
) -> None:
    work = StepWork(prefill_tokens=100, prefill_context=500.0, sequences=8, kv_tokens=1_600)
    assert slowed(MODEL, after(600, slower)).predict(work) == pytest.approx(told * MODEL.predict(work), rel=0.02)


def test_ten_slow_seconds_do_not_change_the_published_model() -> None:
    assert slowed(MODEL, after(10, 2.0)) is MODEL


def test_a_p95_above_the_target_lowers_the_limit_by_a_bounded_share() -> None:
    limit, _ = settle(LOAD._replace(observed_itl=5.0))
    assert 5 <= limit < settle(LOAD)[0]


def test_kv_memory_binds_when_sequences_are_long() -> None:
    limit, binding = settle(LOAD._replace(kv_tokens_total=2_500))
    assert (limit, binding) == (10, "kv")  # 200 tokens each now; their ages scatter the sum of ten by 183


def test_kv_memory_is_reserved_for_the_growth_of_sequences_that_began_together() -> None:
    pool = LOAD._replace(
        running=50, kv_tokens_total=1_000_000, growth_per_sequence=500.0, observed_itl=None, mean_itl=None
    )
    open_ = TARGETS._replace(maximum=10_000, itl=1e6, kv_watermark=1.0)
    balanced = settle(pool._replace(kv_tokens_held=50 * 4_500, written_per_sequence=500.0), 10_000, open_)
    together = settle(
        pool._replace(kv_tokens_held=50 * 4_000, growth_per_sequence=1_000.0, written_per_sequence=0.0), 10_000, open_
    )
    ending = settle(
        pool._replace(kv_tokens_held=50 * 5_000, growth_per_sequence=1.0, written_per_sequence=999.0), 10_000, open_
    )
    assert balanced == (220, "kv")  # of 222 that their mean would fill
    assert together == (218, "kv")  # though 250 would fit now
    assert ending == (199, "kv")  # what all hold at their ends: no sum is larger


def test_a_raised_bound_is_followed_at_once_where_only_the_bound_limited() -> None:
    state = LimitState(limit=64)
    for _ in range(40):  # until what is smoothed stands still
        state, binding = next_limit(state, MODEL, LOAD, TARGETS._replace(maximum=4))
    assert (state.limit, binding) == (4, "bounds")
    opened, _ = next_limit(state, MODEL, LOAD, TARGETS)
    assert opened.limit == settle(LOAD)[0]


def test_the_limit_falls_at_once_and_rises_by_a_tenth() -> None:
    down, _ = next_limit(LimitState(limit=64, context=200.0), MODEL, LOAD, TARGETS)
    assert down.limit < 20
    up, _ = next_limit(LimitState(limit=2, context=200.0), MODEL, LOAD, TARGETS)
    assert up.limit == 3


def test_bounds_hold_even_where_the_model_contradicts_them() -> None:
    assert settle(LOAD, targets=TARGETS._replace(minimum=30, maximum=40))[0] == 30
    assert settle(LOAD, targets=TARGETS._replace(maximum=4)) == (4, "bounds")
    assert settle(LOAD, targets=TARGETS._replace(minimum=9, maximum=3))[0] == 9


def test_a_pause_relaxes_the_limit_and_keeps_the_mean_context() -> None:
    state = LimitState(limit=5, prefill_share=0.4, context=500.0, correction=1.2)
    idle = EngineLoad(0, 0, 0.0, 0.0, 0.0, None, 100_000, 0, 0.0)
    for _ in range(60):
        state, binding = next_limit(state, MODEL, idle, TARGETS)
    assert binding == "itl"
    assert state.limit == int((0.0999999 - 0.03) / (0.004 + 2e-6 * 500))


@dataclass
class ToyEngine:
    """Decodes every running request once a step, gives prompts what is left of the target, as the scheduler does."""

    prompt: int = 150
    output: int = 60
    now: float = 0.0
    waiting: list[int] = field(default_factory=list)
    running: list[list[int]] = field(default_factory=list)  # [prompt tokens left, generated]
    gaps: list[tuple[float, float, int]] = field(default_factory=list)
    prefilled: list[tuple[float, int]] = field(default_factory=list)

    def step(self, limit: int) -> None:
        while self.waiting and len(self.running) < limit:
            self.running.append([self.waiting.pop(), 0])
        decoding = [r for r in self.running if r[0] == 0]
        kv = sum(self.prompt + r[1] for r in decoding)
        spent = MODEL.predict(StepWork(sequences=len(decoding), kv_tokens=kv))
        budget = max(16, int((0.1 - spent) / MODEL.prefill_token)) if decoding else 2_048
        chunk = 0
        for request in self.running:
            take = min(request[0], budget - chunk)
            request[0] -= take
            chunk += take
            if take and request[0] == 0:
                request[1] = 1
        seconds = (
            MODEL.predict(StepWork(prefill_tokens=chunk, sequences=len(decoding), kv_tokens=kv))
            if chunk or decoding
            else 0.02
        )
        self.now += seconds
        for request in decoding:
            request[1] += 1
            self.gaps.append((self.now, seconds, len(decoding)))
        self.prefilled.append((self.now, chunk))
        self.running = [r for r in self.running if r[1] < self.output]

    def load(self, window: float = 5.0) -> EngineLoad:
        since = self.now - window
        self.gaps = [g for g in self.gaps if g[0] > since]
        self.prefilled = [p for p in self.prefilled if p[0] > since]
        gaps = sorted(g for _, g, _ in self.gaps)
        held = sum(self.prompt - r[0] + r[1] for r in self.running)
        return EngineLoad(
            running=len(self.running),
            waiting=len(self.waiting),
            mean_context=held / len(self.running) if self.running else 0.0,
            prefill_rate=sum(c for _, c in self.prefilled) / window,
            prefill_context_rate=0.0,
            observed_itl=gaps[int(0.95 * (len(gaps) - 1))] if gaps else None,
            kv_tokens_total=50_000,
            kv_tokens_held=held,
            growth_per_sequence=self.output / 2,
            mean_itl=sum(gaps) / len(gaps) if gaps else None,
            mean_sequences=sum(rows for _, _, rows in self.gaps) / len(gaps) if gaps else None,
        )


@dataclass
class Run:
    """One toy engine under the fast loop; `drive` goes on from where it stood."""

    engine: ToyEngine = field(default_factory=ToyEngine)
    state: LimitState = field(default_factory=lambda: LimitState(limit=64))
    rng: random.Random = field(default_factory=lambda: random.Random(7))
    next_arrival: float = 0.0

    def drive(self, rate: float, seconds: float) -> list[tuple[int, EngineLoad]]:
        """(limit, load) of each period of the fast loop."""
        deltas, end = [], self.engine.now + seconds
        period = self.engine.now + 1.0
        self.next_arrival = self.engine.now
        while self.engine.now < end:
            while self.next_arrival <= self.engine.now:
                if len(self.engine.waiting) < 20:
                    self.engine.waiting.append(self.engine.prompt)
                self.next_arrival += self.rng.expovariate(rate)
            self.engine.step(self.state.limit)
            if self.engine.now >= period:
                period += 1.0
                load = self.engine.load()
                self.state, _ = next_limit(self.state, MODEL, load, TARGETS)
                deltas.append((self.state.limit, load))
        return deltas


# One replica holds n* ≈ 12 sequences at 0.087 s per token and 60 tokens each: about 2.1 requests per second.
HALF, OVER = 1.0, 4.0


def test_under_half_the_load_the_limit_stays_well_above_the_running_requests() -> None:
    deltas = Run().drive(HALF, 120)[30:]
    full = sum(limit <= load.running for limit, load in deltas)
    assert full <= len(deltas) // 10  # a Poisson burst may touch it for a moment
    assert sum(limit for limit, _ in deltas) > 2.5 * sum(load.running for _, load in deltas)


def test_under_overload_the_running_requests_settle_where_latency_meets_its_target() -> None:
    deltas = Run().drive(OVER, 120)[30:]
    running = sum(load.running for _, load in deltas) / len(deltas)
    means = sorted(load.mean_itl or 0.0 for _, load in deltas)
    tails = sorted(load.observed_itl or 0.0 for _, load in deltas)
    assert means[int(0.95 * len(means))] <= 0.1
    assert tails[len(tails) // 2] <= 0.105
    assert running > 8


def test_the_limit_falls_as_latency_nears_its_target_and_rises_when_the_load_halves() -> None:
    run = Run()
    quiet = run.drive(HALF, 60)[-1][0]
    over = run.drive(OVER, 60)
    relieved = run.drive(OVER / 4, 90)
    mean = sum(limit for limit, _ in over[-20:]) / 20
    after = sum(limit for limit, _ in relieved[-20:]) / 20
    assert mean < quiet
    assert after == pytest.approx(quiet, abs=2)
    assert after > mean + 1


def test_waiting_prompts_leave_no_concurrency_slot_empty() -> None:
    """The same measurements, once with nobody waiting: there the prompt share is what the load needs."""
    filled = LOAD._replace(prefill_rate=2_000, mean_itl=predicted_itl(MODEL, 8, 200, 0.4))
    waited, quiet = settle(filled._replace(waiting=5))[0], settle(filled)[0]
    assert waited > quiet
    assert predicted_itl(MODEL, waited, 200, 0.0) <= 0.1
