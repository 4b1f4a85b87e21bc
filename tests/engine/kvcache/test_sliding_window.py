"""Sliding-window layers release blocks outside the window while the request runs; tokens, prefix hits and block counts
stay correct."""

import random
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sluice_engine.control.limit_controller import LimitController
from sluice_engine.core.engine import EngineLoop
from sluice_engine.kvcache.block_pool import HOLE, BlockPool, chain_hash, group_digest
from sluice_engine.limits import Limits
from sluice_engine.request import Request
from sluice_engine.sampling_params import SamplingParams
from sluice_engine.scheduler import Plan, Scheduler, SchedulerConfig, advance, steady_steps
from sluice_engine.scheduler.chunking import MINIMUM_CHUNK
from sluice_perfmodel.step_time import StepTimeModel
from tests.engine.families import FAMILIES, save
from tests.engine.oracle import Oracle, finish, options, run, submit
from tests.engine.paper import PaperRunner, undisturbed

WINDOW = 24  # of the family's tiny Mistral
MODEL = StepTimeModel(base=0.004, prefill_token=1e-4, prefill_context=1e-7, sequence=5e-4, steps=1000)


@pytest.fixture(scope="module")
def mistral(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save(FAMILIES["mistral"](), tmp_path_factory.mktemp("mistral"))


def text(length: int, seed: int) -> list[int]:
    dice = random.Random(seed)
    return [dice.randrange(2, 128) for _ in range(length)]


def test_blocks_that_left_the_window_are_free_while_the_request_runs(mistral: Path) -> None:
    engine = EngineLoop(options(mistral, max_batched_tokens=32))
    submit(engine, "a", text(150, 1), 80, ignore_eos=True)
    most = 0
    while engine.has_work:
        engine.step()
        engine.scheduler.check()
        for request in engine.scheduler.running:
            held = len(request.blocks) - request.blocks.count(HOLE)
            assert held == engine.scheduler.pool.held
            most = max(most, held)
    assert most <= -(-(WINDOW + 32) // 16) + 1  # of 15 blocks in all


@pytest.mark.parametrize("budget", [17, 512])
def test_tokens_past_the_window_equal_generate_through_chunks_hits_and_samples(mistral: Path, budget: int) -> None:
    engine, oracle = EngineLoop(options(mistral, max_batched_tokens=budget)), Oracle(mistral)
    prompts = [text(length, length) for length in (100, 23, 61, 90)]
    for turn in range(2):  # the second time the window's last blocks are hits
        for index, prompt in enumerate(prompts):
            submit(engine, f"{turn}-{index}", prompt, 40)
        reports = run(engine)
        told: dict[str, list[int]] = {}
        for delta in (delta for report in reports for delta in report.deltas):
            told.setdefault(delta.request_id, []).extend(delta.token_ids)
        for index, prompt in enumerate(prompts):
            oracle.expect(prompt, told.get(f"{turn}-{index}", []), 40)
        assert (sum(report.cached_prompt_tokens for report in reports) >= 96 + 16 + 48 + 80) == (turn == 1)


def test_preempted_requests_in_a_pool_smaller_than_one_context_equal_generate(mistral: Path) -> None:
    block = EngineLoop(options(mistral)).model.kv_shape.block_bytes(16)
    engine = EngineLoop(options(mistral, max_batched_tokens=32, kv_size=block * 9))
    oracle = Oracle(mistral)
    prompts = [text(length, length) for length in (5, 8, 11, 7, 9, 6, 120)]
    for index, prompt in enumerate(prompts):
        submit(engine, str(index), prompt, 60, ignore_eos=True)
    told = finish(engine)
    for index, prompt in enumerate(prompts):
        got = told[str(index)]
        oracle.expect(prompt, got[: got.index(1)] if 1 in got else got, 60)
    assert engine.scheduler.preemptions > 0
    assert engine.scheduler.config.num_blocks * 16 < 256  # the model's context


def test_a_hit_needs_the_windows_blocks_only() -> None:
    pool = BlockPool(8, 4)
    hashes: list[bytes] = []
    for tokens in range(6):
        hashes.append(chain_hash(hashes[-1] if hashes else None, [tokens]))
    blocks = pool.allocate(6)
    for place in (0, 2, 3, 5):
        pool.index(blocks[place], hashes[place])
    assert pool.match(hashes) == [blocks[0]]
    assert pool.match(hashes, windows=(9,)) == [HOLE, HOLE, blocks[2], blocks[3]]  # position 16 looks at 8..15
    assert pool.match(hashes, windows=(10,)) == [blocks[0]]  # and here at 7 too
    assert pool.match(hashes, windows=(5,)) == [HOLE] * 5 + [blocks[5]]
    assert pool.match(hashes, windows=(1,)) == [HOLE] * 6  # a token that sees only itself needs nothing


def test_a_hit_in_groups_needs_all_blocks_of_full_layers_and_the_windows_of_sliding_ones() -> None:
    pool = BlockPool(12, 4)
    hashes = [bytes([logical]) * 32 for logical in range(4)]
    blocks = pool.allocate(12)
    for place, block in enumerate(blocks):
        pool.index(block, group_digest(hashes[place // 3], place % 3))
    windows = (None, 5, 5)
    assert pool.match(hashes, windows) == [
        blocks[0],
        HOLE,
        HOLE,
        blocks[3],
        HOLE,
        HOLE,
        blocks[6],
        HOLE,
        HOLE,
        *blocks[9:],
    ]
    pool.forget([blocks[10]])  # one that slides, of the last logical block: the logical block before it is gone on from
    assert pool.match(hashes, windows) == [blocks[0], HOLE, HOLE, blocks[3], HOLE, HOLE, *blocks[6:9]]
    pool.forget([blocks[1], blocks[2]])  # left the window long ago
    assert len(pool.match(hashes, windows)) == 9
    pool.forget([blocks[3]])  # of layers that see all
    assert pool.match(hashes, windows) == []  # the first logical block's sliding blocks are gone


loads = st.fixed_dictionaries(
    {
        "seed": st.integers(0, 2**32),
        "size": st.sampled_from([1, 3, 8]),
        "window": st.integers(1, 30),
        "full": st.integers(0, 2),
        "sliding": st.integers(1, 3),
        "host": st.sampled_from([0, 40]),
        "length": st.integers(8, 90),
        "spare": st.integers(0, 8),
        "seqs": st.integers(1, 6),
        "tokens": st.integers(1, 64),
        "ahead": st.booleans(),
    }
)


def build(load: dict[str, int]) -> Scheduler:
    size, length, window = load["size"], load["length"], load["window"]
    windows = (None,) * load["full"] + (window,) * load["sliding"]
    kept = load["full"] * -(-length // size) + load["sliding"] * -(-min(length, window + 2 * size) // size)
    config = SchedulerConfig(
        num_blocks=kept + load["spare"],
        block_size=size,
        max_num_seqs=load["seqs"],
        max_model_length=length,
        windows=windows,
        host_blocks=load["host"],
    )
    bounds = Limits(concurrency_max=load["seqs"], max_batched_tokens=load["tokens"], kv_watermark=1.0)
    return Scheduler(config, LimitController(bounds))


@settings(max_examples=100, deadline=None)
@given(loads)
def test_any_load_in_any_pool_gives_each_request_the_tokens_of_a_run_alone(load: dict[str, int]) -> None:
    """Forks, cancels, preemptions of both kinds and prefix hits; the paper's layers look at their windows alone."""
    dice, scheduler = random.Random(load["seed"]), build(load)
    windows, size = scheduler.config.windows, load["size"]
    runner = PaperRunner(scheduler.config.num_blocks, size, windows, load["host"])
    chunks = 2 if load["ahead"] else 1  # one that is planned while another is computed
    most = -(-load["window"] // size) + chunks * -(-max(load["tokens"], MINIMUM_CHUNK) // size) + 2
    everyone: dict[str, Request] = {}
    told: dict[str, list[int]] = {}
    cancelled: set[str] = set()
    left = dice.randint(1, 8)
    under_way: Plan | None = None
    for _ in range(4000):
        if left and dice.random() < 0.3:
            left -= 1
            prompt = [dice.randrange(2) for _ in range(dice.randint(1, load["length"] - 1))]
            room = load["length"] - len(prompt)
            first = Request(f"{left}", prompt, dice.randint(1, room), 0.0, sampling=SamplingParams(seed=0))
            others = [
                first.another_sample(f"{left}-{seed}", SamplingParams(seed=seed))
                for seed in range(1, dice.randint(1, 4))
            ]
            everyone |= {request.request_id: request for request in (first, *others)}
            assert scheduler.submit(first, others) is None
        if scheduler.requests and dice.random() < 0.02:
            name = dice.choice(list(scheduler.requests))
            cancelled.add(name)
            scheduler.cancel(name)
        plan = under_way or scheduler.plan(0.0, MODEL)
        if plan is not None:
            under_way = scheduler.plan_ahead(0.0, MODEL) if load["ahead"] else None
            scheduler.check()
            for outcome in scheduler.settle(plan, runner.run(plan), 0.0):
                told.setdefault(outcome.request_id, []).extend(outcome.token_ids)
        scheduler.check()
        assert all(len(r.blocks) // len(windows) - r.freed_leading <= most for r in scheduler.running if r.blocks)
        if not left and not scheduler.requests and under_way is None:
            break
    assert not scheduler.requests and scheduler.pool.held == 0 and scheduler.state.swap.free == load["host"]
    for name, request in everyone.items():
        prompt = request.known[: request.prompt_length]
        want = undisturbed(request.sampling.seed or 0, prompt, request.max_tokens, windows)
        got = told.get(name, [])
        assert got == (want[: len(got)] if name in cancelled else want)


@settings(max_examples=60, deadline=None)
@given(loads)
def test_k_steps_at_once_equal_k_single_ones(load: dict[str, int]) -> None:
    def world() -> Scheduler:
        scheduler, dice = build(load), random.Random(load["seed"])
        for number in range(dice.randint(1, 6)):
            prompt = [dice.randrange(2) for _ in range(dice.randint(1, load["length"] - 1))]
            scheduler.submit(Request(str(number), prompt, dice.randint(1, 60), 0.0))
        return scheduler

    def single(scheduler: Scheduler) -> None:
        plan = scheduler.plan(0.0)
        assert plan is not None
        scheduler.settle(plan, [0] * sum(row.samples for row in plan.rows), 0.0)
        scheduler.check()

    def look(scheduler: Scheduler) -> object:
        return [
            (r.request_id, r.known, r.computed, r.freed_leading, len(r.blocks), r.indexed) for r in scheduler.running
        ], scheduler.pool.held

    one, many = world(), world()
    while one.requests:
        steady = steady_steps(many.state)
        for _ in range(max(1, steady)):
            single(one)
        if steady:
            advance(many.state, [0.0] * steady)
            many.check()
        else:
            single(many)
        assert look(one) == look(many)
