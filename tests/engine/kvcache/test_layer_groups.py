"""Models that alternate full and sliding layers, Gemma 2 and 3 and a Qwen2 that the compiled decoder runs: the sliding
layers release blocks outside their window, the others keep them, and every text equals that of plain transformers."""

import random
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from transformers import AutoModelForCausalLM

from sluice_engine import LLM, SamplingParams
from sluice_engine.control.limit_controller import LimitController
from sluice_engine.control.load_window import LoadWindow
from sluice_engine.core.engine import EngineLoop
from sluice_engine.kvcache.block_pool import HOLE
from sluice_engine.limits import Limits
from sluice_engine.model.layer_groups import MAX_IDLE_SHARE, group_layers
from sluice_engine.request import Request
from sluice_engine.scheduler import Scheduler, SchedulerConfig
from sluice_perfmodel.step_time import StepTimeModel
from tests.engine.families import FAMILIES, save
from tests.engine.oracle import Oracle, options, run, submit

WINDOW, SIZE, CHUNK = 20, 16, 32  # ALTERNATING's window, the default block, and a step's tokens
FULL, SLIDING = 1, 2  # groups of its three layers
KEPT = -(-(WINDOW + CHUNK + 2 * SIZE) // SIZE)  # logical blocks of which a sliding group holds blocks, at most
EVERY = FULL * 256 // SIZE + SLIDING * KEPT  # blocks of a request of the model's whole context
MODEL = StepTimeModel(base=0.004, prefill_token=1e-4, prefill_context=1e-7, sequence=5e-4, steps=1000)


@pytest.fixture(scope="module", params=["gemma2", "gemma3", "qwen2"])
def folder(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save(FAMILIES[request.param](), tmp_path_factory.mktemp(request.param))


@pytest.fixture(scope="module")
def oracle(folder: Path) -> Oracle:
    return Oracle(folder)


def text(length: int, seed: int) -> list[int]:
    dice = random.Random(seed)
    return [dice.randrange(2, 128) for _ in range(length)]


def engine_of(folder: Path, blocks: int, **changes: object) -> EngineLoop:
    """An engine whose pool has so many blocks."""
    size = 2 * 1 * SIZE * 2 * (32 if "gemma" in folder.name else 16) * 4  # of one of three layers
    engine = EngineLoop(options(folder, max_batched_tokens=CHUNK, kv_size=blocks * size, **changes))
    assert (engine.scheduler.config.num_blocks, engine.scheduler.config.windows) == (blocks, (None, WINDOW, WINDOW))
    return engine


def said(engine: EngineLoop) -> tuple[dict[str, list[int]], int]:
    """Every request's tokens once all have ended, and how many prompt tokens were cached."""
    reports, told = run(engine), dict[str, list[int]]()
    for delta in (delta for report in reports for delta in report.deltas):
        told.setdefault(delta.request_id, []).extend(delta.token_ids)
    return told, sum(report.cached_prompt_tokens for report in reports)


def test_a_long_text_finishes_in_a_pool_that_could_not_hold_all_of_it(folder: Path, oracle: Oracle) -> None:
    engine, prompt = engine_of(folder, EVERY), text(130, 1)
    submit(engine, "a", prompt, 120, ignore_eos=True)
    told: list[int] = []
    most = 0
    while engine.has_work:
        report = engine.step()
        engine.scheduler.check()
        told += [token for delta in (report.deltas if report else ()) for token in delta.token_ids]
        for request in engine.scheduler.running:
            holes, logical_blocks = request.blocks.count(HOLE), len(request.blocks) // 3
            assert engine.scheduler.pool.held == len(request.blocks) - holes
            most = max(most, logical_blocks - holes // SLIDING)
    oracle.expect(prompt, told[: told.index(1)] if 1 in told else told, 120)
    assert len(told) == 120 and engine.scheduler.preemptions == 0
    assert most <= KEPT and 3 * -(-250 // SIZE) > EVERY  # all that the text fills is more than there is


def test_prefixes_longer_than_the_window_are_found_by_the_blocks_inside_it(folder: Path, oracle: Oracle) -> None:
    engine, prompt = engine_of(folder, 3 * EVERY), text(150, 2)
    asked = {"long": prompt, "again": [*prompt, 5], "part": [*prompt[:100], 7, 8], "inside": [*prompt[:17], 9]}
    cached = {}
    for name, each in asked.items():
        submit(engine, name, each, 16)
        told, cached[name] = said(engine)
        oracle.expect(each, told.get(name, []), 16)
    assert cached == {"long": 0, "again": 144, "part": 96, "inside": 16}


@pytest.mark.parametrize(("seconds", "overlap"), [(0.0, True), (1.0, False)], ids=["swap-ahead", "recompute"])
def test_a_preempted_request_gives_the_same_tokens(folder: Path, oracle: Oracle, seconds: float, overlap: bool) -> None:
    engine = engine_of(folder, EVERY, overlap=overlap, speculation="off")
    engine.scheduler.state.admission._config = replace(engine.scheduler.config, predicted_admission=False)
    engine.scheduler.state.swap._config = replace(engine.scheduler.config, swap_block_seconds=seconds)
    engine.fit.model = MODEL
    engine.fit.observe = lambda work, seconds: None  # type: ignore[method-assign]
    prompts = [text(length, length) for length in (30, 25, 41, 90)]
    for index, prompt in enumerate(prompts):
        submit(engine, str(index), prompt, 40, ignore_eos=True)
    told, _ = said(engine)
    for index, prompt in enumerate(prompts):
        got = told[str(index)]
        oracle.expect(prompt, got[: got.index(1)] if 1 in got else got, 40)
    assert engine.scheduler.preemptions > 0
    assert (engine.scheduler.swaps > 0) == (seconds == 0.0)


def test_samples_and_beams_go_on_from_shared_blocks_as_if_alone(folder: Path) -> None:
    llm, prompt = LLM(folder, threads=1, kv_size=4 << 20), text(60, 3)
    three = SamplingParams(n=3, max_tokens=40, temperature=0.8, seed=5)
    alone = LLM(folder, threads=1, kv_size=4 << 20, max_num_seqs=1)
    assert _texts(llm, prompt, three) == _texts(alone, prompt, three)
    plain, ids = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval(), torch.tensor([prompt])
    want = plain.generate(
        ids, attention_mask=torch.ones_like(ids), num_beams=3, num_return_sequences=3, do_sample=False,
        max_new_tokens=30, pad_token_id=1,
    )  # fmt: skip
    beams = llm.beam_search([prompt], 3, 30)[0]
    for row, beam in zip(want[:, len(prompt) :].tolist(), beams, strict=True):
        assert list(beam.token_ids) == (row[: row.index(1)] if 1 in row else row)


def _texts(llm: LLM, prompt: list[int], params: SamplingParams) -> list[list[int]]:
    (result,) = llm.generate([prompt], params)
    return [list(answer.token_ids) for answer in result.samples]


def test_a_blocks_published_size_is_what_it_is_worth_in_whole_tokens(folder: Path) -> None:
    engine = engine_of(folder, EVERY)
    assert engine.ready.block_size == SIZE / 3 and engine.ready.num_blocks == EVERY
    load = engine.window.load(engine.scheduler.occupancy, 0.0)
    assert load.kv_tokens_total == EVERY * SIZE // 3


def test_the_limit_counts_what_a_running_request_will_hold_not_what_it_will_write() -> None:
    config = SchedulerConfig(num_blocks=200, max_model_length=400, windows=(None, WINDOW, WINDOW))
    scheduler = Scheduler(config, LimitController(Limits(max_batched_tokens=512)))
    scheduler.submit(Request("a", text(100, 1), 90, 0.0))
    while scheduler.running == [] or scheduler.running[0].generated < 30:
        plan = scheduler.plan(0.0)
        assert plan is not None
        scheduler.settle(plan, [5], 0.0)
    load = LoadWindow().load(scheduler.occupancy, 0.0)
    assert load.growth_per_sequence == (90 / 2 - 30) / 3  # one layer in three keeps every further token
    assert load.written_per_sequence == (30 + 2 * WINDOW) / 3
    assert load.kv_tokens_held == scheduler.pool.held * SIZE // 3


@given(st.lists(st.booleans(), max_size=70))
def test_every_layer_has_a_place_of_its_own_and_little_is_left_idle(slides: list[bool]) -> None:
    groups = group_layers([WINDOW if each else None for each in slides])
    assert len(set(groups.places)) == len(slides) and all(place < groups.depth for _, place in groups.places)
    for (group, _), each in zip(groups.places, slides, strict=True):
        assert groups.windows[group] == (WINDOW if each else None)
    taken = len(groups.windows) * groups.depth
    assert taken - len(slides) <= MAX_IDLE_SHARE * taken


@pytest.mark.parametrize(
    ("full", "sliding", "depth", "groups"),
    [(13, 13, 13, 2), (21, 21, 21, 2), (23, 23, 23, 2), (4, 22, 4, 7), (5, 29, 5, 7), (8, 40, 8, 6), (10, 52, 6, 11)],
    ids=["gemma-2-2b", "gemma-2-9b", "gemma-2-27b", "gemma-3-1b", "gemma-3-4b", "gemma-3-12b", "gemma-3-27b"],
)
def test_the_groups_of_gemmas(full: int, sliding: int, depth: int, groups: int) -> None:
    found = group_layers([None] * full + [1024] * sliding)
    assert (found.depth, len(found.windows)) == (depth, groups)


def test_layers_of_one_kind_are_one_group() -> None:
    assert group_layers([None] * 5).windows == (None,) and group_layers([24] * 5).windows == (24,)
    assert group_layers([24, 30]).windows == (30,) and group_layers([]).depth == 0


def test_drafts_that_are_taken_back_leave_windows_and_tables_right(folder: Path, oracle: Oracle) -> None:
    engine, prompts = engine_of(folder, 4 * EVERY, speculation="on"), [text(12, seed) * 5 for seed in range(3)]
    for index, prompt in enumerate(prompts):
        submit(engine, str(index), prompt, 30)
    heads_or_tails = {"temperature": 10.0, "seed": 1, "logit_bias": {2: 100.0, 3: 100.0}}  # often guessed wrongly
    submit(engine, "coin", [2, 3, 3, 2] * 5, 30, **heads_or_tails)
    told, _ = said(engine)
    for index, prompt in enumerate(prompts):
        oracle.expect(prompt, told.get(str(index), []), 30)
    assert engine.scheduler.speculation.drafted > engine.scheduler.speculation.accepted > 0
