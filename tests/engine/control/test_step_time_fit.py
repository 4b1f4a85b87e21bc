"""The online fit finds the coefficients that made the steps, and keeps them."""

import random

import pytest

from sluice_engine.control import step_time_fit
from sluice_engine.control.step_time_fit import StepTimeFit, solve_non_negative
from sluice_perfmodel.step_time import StepTimeModel, StepWork
from tests.counting import count_calls

TRUE = StepTimeModel(base=0.008, prefill_token=1.5e-4, prefill_context=2e-8, sequence=3e-4, kv_token=4e-7)


def some_work(dice: random.Random, prefill: bool) -> StepWork:
    sequences = dice.randint(0 if prefill else 1, 64)
    tokens = dice.randint(16, 512) if prefill else 0
    context = dice.randint(0, 30_000)
    return StepWork(tokens, tokens * (context + tokens / 2), sequences, sequences * dice.randint(50, 2000))


def learn(
    fit: StepTimeFit, truth: StepTimeModel, steps: int, dice: random.Random, prefill: float, noise: float
) -> None:
    for _ in range(steps):
        work = some_work(dice, dice.random() < prefill)
        fit.observe(work, truth.predict(work) * dice.lognormvariate(0.0, noise))


def assert_close(model: StepTimeModel, truth: StepTimeModel, tolerance: float) -> None:
    for name in ("base", "prefill_token", "prefill_context", "sequence", "kv_token"):
        assert getattr(model, name) == pytest.approx(getattr(truth, name), rel=tolerance), name


@pytest.mark.parametrize("seed", range(5))
def test_known_coefficients_are_recovered_within_ten_per_cent_from_noisy_steps(seed: int) -> None:
    fit = StepTimeFit()
    learn(fit, TRUE, 2000, random.Random(seed), prefill=0.4, noise=0.05)
    assert_close(fit.model, TRUE, 0.10)
    assert 0.02 < fit.model.error_ratio < 0.08
    assert fit.model.steps > 1900


@pytest.mark.parametrize("seed", range(3))
def test_predictions_are_right_on_the_mean_where_steps_scatter_by_a_third(seed: int) -> None:
    fit = StepTimeFit()
    dice = random.Random(seed)
    told, measured = 0.0, 0.0
    for step in range(3000):
        work = some_work(dice, dice.random() < 0.4)
        seconds = TRUE.predict(work) * dice.lognormvariate(0.0, 0.33)
        if step >= 500:
            told, measured = told + fit.model.predict(work), measured + seconds
        fit.observe(work, seconds)
    assert told == pytest.approx(measured, rel=0.06)


def test_thousands_of_decode_only_steps_barely_change_the_prefill_terms() -> None:
    fit = StepTimeFit()
    dice = random.Random(1)
    learn(fit, TRUE, 1500, dice, prefill=0.5, noise=0.03)
    before = fit.model
    learn(fit, TRUE, 10_000, dice, prefill=0.0, noise=0.03)
    assert fit.model.prefill_token == pytest.approx(before.prefill_token, rel=0.01)
    assert fit.model.prefill_context == pytest.approx(before.prefill_context, rel=0.01)


def test_a_long_time_at_one_batch_size_does_not_mix_up_base_and_sequences() -> None:
    fit = StepTimeFit()
    dice = random.Random(2)
    learn(fit, TRUE, 1500, dice, prefill=0.3, noise=0.03)
    for _ in range(3000):
        work = StepWork(sequences=32, kv_tokens=32 * dice.randint(400, 600))
        fit.observe(work, TRUE.predict(work) * dice.lognormvariate(0.0, 0.03))
    assert fit.model.base == pytest.approx(TRUE.base, rel=0.15)
    assert fit.model.sequence == pytest.approx(TRUE.sequence, rel=0.15)


@pytest.mark.parametrize("seed", range(5))
def test_a_machine_that_slows_down_is_followed_within_200_steps(seed: int) -> None:
    fit = StepTimeFit()
    dice = random.Random(seed)
    learn(fit, TRUE, 1000, dice, prefill=0.4, noise=0.02)
    slower = StepTimeModel(base=0.016, prefill_token=3e-4, prefill_context=4e-8, sequence=6e-4, kv_token=8e-7)
    learn(fit, slower, 200, dice, prefill=0.4, noise=0.02)
    work = StepWork(128, 128 * 500.0, 32, 32_000)
    assert fit.model.predict(work) == pytest.approx(slower.predict(work), rel=0.10)


def test_stalls_of_the_machine_barely_change_the_fit() -> None:
    fit = StepTimeFit()
    dice = random.Random(4)
    for _ in range(3000):
        work = some_work(dice, dice.random() < 0.4)
        stall = 50.0 if dice.random() < 0.01 else 1.0
        fit.observe(work, TRUE.predict(work) * stall)
    work = StepWork(128, 128 * 500.0, 32, 32_000)
    assert fit.model.predict(work) == pytest.approx(TRUE.predict(work), rel=0.10)


def test_the_first_step_of_a_new_size_is_left_out() -> None:
    fit = StepTimeFit()
    fit.observe(StepWork(sequences=4), 5.0)
    assert fit.model.steps == 0
    fit.observe(StepWork(sequences=4), 0.01)
    assert fit.model.predict(StepWork(sequences=4)) == pytest.approx(0.01, rel=0.01)


def test_no_coefficient_is_negative_and_non_positive_times_are_ignored() -> None:
    fit = StepTimeFit()
    for tokens in range(16, 400):  # time falls with size: only a negative slope would fit
        fit.observe(StepWork(tokens, tokens * tokens / 2), 1.0 / tokens)
        fit.observe(StepWork(tokens), 0.0)
        fit.observe(StepWork(tokens), -1.0)
    model = fit.model
    assert min(model.base, model.prefill_token, model.prefill_context, model.sequence, model.kv_token) >= 0.0


def test_the_solver_keeps_terms_that_never_occurred_at_zero() -> None:
    assert solve_non_negative([[2.0, 0.0], [0.0, 0.0]], [4.0, 0.0]) == [2.0, 0.0]
    assert solve_non_negative([[1.0, 0.0], [0.0, 1.0]], [1.0, -1.0]) == [1.0, 0.0]


def test_the_cost_of_an_observation_does_not_grow_with_the_number_of_steps() -> None:
    fit = StepTimeFit()
    dice = random.Random(5)
    learn(fit, TRUE, 300, dice, prefill=0.4, noise=0.02)
    assert count_calls(lambda: learn(fit, TRUE, 400, dice, prefill=0.4, noise=0.02)) < 400 * 100


def test_prefill_terms_are_learned_after_a_long_decode_only_period() -> None:
    fit = StepTimeFit()
    for step in range(70):  # steps that a base of zero explains
        fit.observe(StepWork(sequences=1, kv_tokens=20 + step), 1e-4 * (20 + step))
    for tokens in (14, 15, 13, 12):
        fit.observe(StepWork(tokens, tokens * 7.0), 0.004)
    assert fit.model.predict(StepWork(14, 98.0)) == pytest.approx(0.004, rel=0.5)


@pytest.mark.parametrize("seed", [0, 1, 3])
def test_a_drifting_machine_speed_does_not_zero_the_prefill_terms(seed: int) -> None:
    """Verdict after verdict that the machine has changed, over small chunks alone: what large ones said must outlast it,
    or the next one is planned as if it took no time."""
    fit, dice = StepTimeFit(), random.Random(seed)
    for i in range(60):
        work = StepWork(2048, 2048 * (1024.0 + 2048 * (i % 2)), i % 8, 4096 * (i % 8))
        fit.observe(work, TRUE.predict(work) * dice.lognormvariate(0.0, 0.1))
    large, level, least = StepWork(1024, 1024 * 3000.0, 8, 33_000), 0.0, 1.0
    for i in range(600):
        level = dice.choice([0.0, 0.35, -0.1, 0.6]) if i % 25 == 0 else level
        chunk = 16 if i % 5 else 0
        work = StepWork(chunk, chunk * (1000.0 + 10 * i), 8, 33_000)
        fit.observe(work, TRUE.predict(work) * dice.lognormvariate(level, 0.15))
        least = min(least, fit.model.predict(large) / TRUE.predict(large))
    assert least > 0.15


def test_a_shape_not_seen_for_hours_does_not_delay_adapting_to_a_changed_machine(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The unused shape's sums decay to exactly 0. A faster decay than the default needs fewer steps for that."""
    monkeypatch.setattr(step_time_fit, "_KIND_DECAY", 0.9)
    fit = StepTimeFit()
    for sequences, steps in ((30, 20), (4, 7200)):
        for _ in range(steps):
            fit.observe(StepWork(sequences=sequences, kv_tokens=100 * sequences), 0.01)
    for _ in range(200):
        fit.observe(StepWork(sequences=4, kv_tokens=400), 0.03)
    assert fit.model.predict(StepWork(sequences=4, kv_tokens=400)) == pytest.approx(0.03, rel=0.1)
