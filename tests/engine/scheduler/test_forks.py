"""Samples and beams that share blocks: the prompt is computed once, the first write copies, no block leaks."""

import random
from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sluice_engine.control.limit_controller import LimitController
from sluice_engine.limits import Limits
from sluice_engine.request import Request
from sluice_engine.sampling_params import SamplingParams
from sluice_engine.scheduler import Outcome, Plan, Scheduler, SchedulerConfig, branch, extend, steady_steps
from tests.engine.paper import PaperRunner, next_token, undisturbed


def engine(blocks: int = 64, size: int = 16, seqs: int = 8, tokens: int = 256, length: int = 256) -> Scheduler:
    config = SchedulerConfig(num_blocks=blocks, block_size=size, max_num_seqs=seqs, max_model_length=length)
    return Scheduler(config, LimitController(Limits(concurrency_max=seqs, max_batched_tokens=tokens, kv_watermark=1.0)))


def group(name: str, prompt: list[int], count: int, max_tokens: int = 8) -> list[Request]:
    first = Request(f"{name}0", prompt, max_tokens, 0.0, sampling=SamplingParams(seed=0))
    return [first, *(first.another_sample(f"{name}{seed}", SamplingParams(seed=seed)) for seed in range(1, count))]


def step(scheduler: Scheduler, runner: PaperRunner, errors: dict[str, str] | None = None) -> tuple[Plan, list[Outcome]]:
    plan = scheduler.plan(0.0)
    assert plan is not None
    outcomes = scheduler.settle(plan, runner.run(plan), 0.0, errors or {})
    scheduler.check()
    return plan, outcomes


def texts(scheduler: Scheduler, runner: PaperRunner) -> dict[str, list[int]]:
    told: dict[str, list[int]] = {}
    while scheduler.requests:
        for outcome in step(scheduler, runner)[1]:
            told.setdefault(outcome.request_id, []).extend(outcome.token_ids)
    return told


def test_the_prompt_is_computed_once_and_every_sample_has_its_first_token_from_it() -> None:
    scheduler, runner = engine(), PaperRunner(64, 16)
    first, *others = group("s", list(range(40)), 4)
    scheduler.submit(first, others)
    plan, outcomes = step(scheduler, runner)
    assert [(row.request_id, len(row.tokens), len(row.forks)) for row in plan.rows] == [("s0", 40, 3)]
    assert [outcome.request_id for outcome in outcomes] == ["s0", "s1", "s2", "s3"]
    assert plan.prompt_tokens == 40
    assert scheduler.pool.held == 3  # the part-filled block too is shared
    assert all(len(outcome.token_ids) == 1 and outcome.first for outcome in outcomes)


def test_the_first_write_copies_and_the_last_holder_writes_in_place() -> None:
    scheduler, runner = engine(), PaperRunner(64, 16)
    first, *others = group("s", list(range(40)), 4)
    scheduler.submit(first, others)
    step(scheduler, runner)
    plan, _ = step(scheduler, runner)
    assert len(plan.copies) == 3 and len({source for source, _ in plan.copies}) == 1
    assert scheduler.pool.held == 2 + 4
    plan, _ = step(scheduler, runner)
    assert not plan.copies
    told = texts(scheduler, runner)
    assert told == {f"s{seed}": undisturbed(seed, range(40), 8)[3:] for seed in range(4)}


def test_a_prompt_that_fills_its_blocks_needs_no_copy() -> None:
    scheduler, runner = engine(), PaperRunner(64, 16)
    first, *others = group("s", list(range(48)), 3)
    scheduler.submit(first, others)
    assert texts(scheduler, runner) == {f"s{seed}": undisturbed(seed, range(48), 8) for seed in range(3)}
    assert runner.copies == 0


def test_samples_beyond_the_concurrency_limit_queue_and_hit_the_prompt_in_the_cache() -> None:
    scheduler, runner = engine(seqs=2), PaperRunner(64, 16)
    first, *others = group("s", list(range(40)), 5)
    scheduler.submit(first, others)
    plan, _ = step(scheduler, runner)
    assert len(plan.rows[0].forks) == 1 and len(scheduler.waiting) == 3
    told = texts(scheduler, runner)
    assert all(told[f"s{seed}"][-7:] == undisturbed(seed, range(40), 8)[-7:] for seed in range(5))
    assert others[-1].cached_tokens == 32


def test_when_the_first_sample_ends_early_the_next_one_computes_the_prompt_for_the_others() -> None:
    scheduler, runner = engine(tokens=16), PaperRunner(64, 16)
    first, *others = group("s", list(range(40)), 3)
    scheduler.submit(first, others)
    step(scheduler, runner)
    assert scheduler.cancel("s0") and scheduler.cancel("s2") and not scheduler.cancel("s0")
    scheduler.check()
    assert texts(scheduler, runner) == {"s1": undisturbed(1, range(40), 8)}


@pytest.mark.parametrize("leaves", ["none", "first", "failed"])
def test_a_prompt_counts_once_however_its_samples_end(leaves: str) -> None:
    scheduler, runner = engine(seqs=2, tokens=16), PaperRunner(64, 16)
    first, *others = group("s", list(range(40)), 5)
    scheduler.submit(first, others)
    counted = step(scheduler, runner, {"s0": "it broke"} if leaves == "failed" else None)[0].prompt_tokens
    if leaves == "first":
        scheduler.cancel("s0")
    while scheduler.requests:
        counted += step(scheduler, runner)[0].prompt_tokens
    assert counted == 40


def test_samples_of_a_prompt_that_failed_compute_it_themselves() -> None:
    scheduler, runner = engine(), PaperRunner(64, 16)
    first, *others = group("s", list(range(40)), 3)
    scheduler.submit(first, others)
    _, outcomes = step(scheduler, runner, {"s0": "it broke"})
    assert [(outcome.request_id, outcome.finish) for outcome in outcomes] == [("s0", "error")]
    assert scheduler.pool.held == scheduler.pool.cached == 0
    assert texts(scheduler, runner) == {f"s{seed}": undisturbed(seed, range(40), 8) for seed in (1, 2)}


def test_no_steps_are_steady_while_a_copy_on_write_is_pending() -> None:
    scheduler, runner = engine(), PaperRunner(64, 16)
    first, *others = group("s", list(range(40)), 2)
    scheduler.submit(first, others)
    step(scheduler, runner)
    assert steady_steps(scheduler.state) == 0
    step(scheduler, runner)
    assert steady_steps(scheduler.state) > 0


def test_blocks_of_a_cancelled_beam_are_free_at_once() -> None:
    scheduler, runner = engine(), PaperRunner(64, 16)
    scheduler.submit(Request("root", list(range(40)), 90, 0.0, steered=True))
    step(scheduler, runner)
    for child in "abc":
        branch(scheduler.state, "root", child, ord(child))
    extend(scheduler.state, "root", 7)
    for _ in range(20):  # past a block's end
        step(scheduler, runner)
        for name in ("root", *"abc"):
            extend(scheduler.state, name, 7)
    held, available = scheduler.pool.held, scheduler.pool.available
    assert held == 2 + 4 * 2
    assert scheduler.cancel("a") and scheduler.cancel("b")
    scheduler.check()
    assert scheduler.pool.held == held - 4 and scheduler.pool.available == available + 4


loads = st.fixed_dictionaries(
    {
        "seed": st.integers(0, 2**32),
        "size": st.sampled_from([1, 3, 8]),
        "length": st.integers(8, 60),
        "spare": st.integers(0, 8),
        "seqs": st.integers(1, 9),
        "tokens": st.integers(1, 64),
        "ahead": st.booleans(),  # whether a step is planned while the one before runs, where that can be
    }
)


class World:
    """A scheduler over a paper runner, a die, and what every request has said."""

    def __init__(self, load: dict[str, int]) -> None:
        self.dice = random.Random(load["seed"])
        self.length = load["length"]
        blocks = -(-load["length"] // load["size"]) + load["spare"]
        self.scheduler = engine(blocks, load["size"], load["seqs"], load["tokens"], load["length"])
        self.runner = PaperRunner(blocks, load["size"])
        self.told: dict[str, list[int]] = {}
        self.ends: Counter[str] = Counter()
        self._ahead = bool(load["ahead"])
        self._under_way: Plan | None = None

    @property
    def over(self) -> bool:
        """True if there is no request and no step is in flight."""
        return not self.scheduler.requests and self._under_way is None

    def prompt(self, most: int) -> list[int]:
        return [self.dice.randrange(2) for _ in range(self.dice.randint(1, most))]  # prefixes collide often

    def step(self, failures: float = 0.0) -> list[Outcome]:
        plan = self._under_way or self.scheduler.plan(0.0)
        if plan is None:
            self.scheduler.check()
            return []
        self._under_way = self.scheduler.plan_ahead(0.0) if self._ahead else None
        self.scheduler.check()
        names = [name for row in plan.rows for name in row.sampled_ids]
        errors = {name: "broken" for name in names if self.dice.random() < failures}
        outcomes = self.scheduler.settle(plan, self.runner.run(plan), 0.0, errors)
        for outcome in outcomes:
            self.told.setdefault(outcome.request_id, []).extend(outcome.token_ids)
            self.ends[outcome.request_id] += outcome.finish is not None
        self.scheduler.check()
        return outcomes


@settings(max_examples=120, deadline=None)
@given(loads)
def test_samples_have_the_tokens_of_an_undisturbed_run_whatever_happens_to_the_others(load: dict[str, int]) -> None:
    world = World(load)
    dice, scheduler = world.dice, world.scheduler
    groups = []
    for number in range(dice.randint(1, 6)):
        prompt = world.prompt(world.length - 1)
        groups.append(group(f"{number}-", prompt, dice.randint(1, 6), dice.randint(1, world.length - len(prompt))))
    everyone = {request.request_id: request for requests in groups for request in requests}
    lost: set[str] = set()
    for _ in range(3000):
        if groups and dice.random() < 0.3:
            first, *others = groups.pop()
            assert scheduler.submit(first, others) is None
        if scheduler.requests and dice.random() < 0.03:
            name = dice.choice(list(scheduler.requests))
            lost.add(name)
            assert scheduler.cancel(name)
        lost.update(outcome.request_id for outcome in world.step(failures=0.01) if outcome.finish == "error")
        if not groups and world.over:
            break
    assert not scheduler.requests and scheduler.pool.held == 0
    for name, request in everyone.items():
        want = undisturbed(request.sampling.seed or 0, request.known[: request.prompt_length], request.max_tokens)
        told = world.told.get(name, [])
        assert told == want[: len(told)] if name in lost else told == want
        assert world.ends[name] == 1 or name in lost


@settings(max_examples=120, deadline=None)
@given(loads)
def test_beams_continue_with_the_given_tokens_whatever_is_forked_cancelled_or_preempted(load: dict[str, int]) -> None:
    world = World(load)
    dice, scheduler = world.dice, world.scheduler
    prompt = world.prompt(world.length // 2)
    scheduler.submit(
        Request("root", list(prompt), world.length - len(prompt), 0.0, sampling=SamplingParams(seed=7), steered=True)
    )
    for number in range(dice.randint(0, 3)):
        scheduler.submit(Request(f"other {number}", world.prompt(world.length - 1), dice.randint(1, 20), 0.0))
    beams: dict[str, list[int]] = {"root": prompt}
    names = iter(range(10_000))
    for _ in range(world.length - len(prompt)):
        told: dict[str, int] = {}
        for _ in range(3000):
            told.update((o.request_id, o.token_ids[0]) for o in world.step() if o.request_id in beams)
            if told.keys() == beams.keys():
                break
        assert told == {name: next_token(7, list(enumerate(known))) for name, known in beams.items()}
        for name, known in list(beams.items()):
            room = 5 - len(beams)
            for _ in range(dice.randint(0, max(0, room))):
                child, token = f"beam {next(names)}", dice.randrange(5)
                branch(scheduler.state, name, child, token)
                beams[child] = [*known, token]
            if dice.random() < 0.3 and len(beams) > 1:
                assert scheduler.cancel(name)
                del beams[name]
            else:
                token = dice.randrange(5)
                extend(scheduler.state, name, token)
                beams[name] = [*known, token]
        scheduler.check()
    for name in beams:
        assert scheduler.cancel(name)
    while not world.over:
        world.step()
    assert scheduler.pool.held == 0
