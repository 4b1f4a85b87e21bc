"""Steps that give up the end of their chunk: what is kept is right, and nobody finds what was not computed."""

import itertools
import random
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from sluice_engine import messages
from sluice_engine.backend.cpu import native
from sluice_engine.backend.cpu.decoder import NativeDecoder
from sluice_engine.backend.runner import Runner, StepResult
from sluice_engine.control.step_deadline import Cut
from sluice_engine.control.step_time_fit import StepTimeFit
from sluice_engine.core.engine import EngineLoop
from sluice_engine.core.executor import Execute, StepPipeline
from sluice_engine.scheduler import Plan
from sluice_perfmodel.step_time import StepTimeModel, StepWork
from tests.engine.oracle import Oracle, finish, options, submit

AT_ONCE, NEVER = 1e-9, 1e9  # seconds that a step may take
MODEL = StepTimeModel(base=0.001, prefill_token=1e-4, steps=1000)
TARGET = 0.006  # seconds: chunks of some fifty tokens beside decodes


class Known(StepTimeFit):
    """The model does not depend on how fast this machine is."""

    def __init__(self) -> None:
        super().__init__()
        self.model = MODEL

    def observe(self, work: StepWork, seconds: float) -> None:
        """Learns nothing."""


class Hurried:
    """A runner whose deadlines are others than planned. `cuts`: what came of them."""

    def __init__(self, runner: Runner, seconds: Callable[[], float]) -> None:
        self._runner, self._seconds = runner, seconds
        self.cuts: list[tuple[Plan, Cut | None]] = []

    def prepare(self, plan: Plan) -> Execute:
        if plan.deadline is None:
            return self._runner.prepare(plan)
        execute = self._runner.prepare(replace(plan, deadline=replace(plan.deadline, seconds=self._seconds())))

        def noted() -> StepResult:
            result = execute()
            self.cuts.append((plan, result.cut))
            return result

        return noted


def hurried(engine: EngineLoop, seconds: Callable[[], float]) -> Hurried:
    """The engine with other deadlines, and a step-time model that is known."""
    assert isinstance(engine.runner, Runner)
    runner = Hurried(engine.runner, seconds)
    engine._pipeline, engine.fit = StepPipeline(runner, engine.options.overlap), Known()
    return runner


@pytest.fixture
def compiled(library: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Engines load the kernels that were compiled for these tests, not what lies installed."""
    monkeypatch.setattr(native, "LIBRARY", library)


def cuts_beside_a_stream(folder: Path, seconds: float) -> tuple[int, list[tuple[Plan, Cut | None]]]:
    """The model's layers, and what comes of a long prompt's steps with so much time each."""
    engine = EngineLoop(options(folder, itl_target=TARGET, ttft_target=NEVER, speculation="off", concurrency_min=4))
    runner = hurried(engine, lambda: seconds)
    submit(engine, "stream", [5, 6, 7], 60)
    engine.step()
    submit(engine, "long", [(7 * i) % 120 + 2 for i in range(200)], 4)
    finish(engine)
    return engine.model.module.config.num_hidden_layers, runner.cuts


def prompts(draw: random.Random) -> list[list[int]]:
    """Long and short ones; some go on from others."""
    made: list[list[int]] = []
    for _ in range(14):
        shared = draw.choice(made)[: draw.choice((16, 40, 100))] if made and draw.random() < 0.6 else []
        made.append(shared + [draw.randrange(2, 128) for _ in range(draw.choice((3, 60, 180)))])
    return made


@pytest.mark.parametrize(("seed", "threads"), [(1, 1), (2, 2), (3, 3)])
def test_output_equals_transformers_wherever_chunks_are_cut(
    compiled: None, tiny_llama: Path, seed: int, threads: int
) -> None:
    draw, seconds = random.Random(seed), itertools.cycle((AT_ONCE, AT_ONCE, NEVER))
    few = {"max_num_seqs": 6, "concurrency_max": 6, "concurrency_min": 6, "kv_size": 400 << 10}
    engine = EngineLoop(
        options(tiny_llama, itl_target=TARGET, ttft_target=NEVER, speculation="off", threads=threads, **few)
    )
    assert isinstance(engine.model.module.forward, NativeDecoder) and engine.scheduler.config.chunk_deadlines
    runner, oracle = hurried(engine, lambda: next(seconds)), Oracle(tiny_llama)
    texts: dict[str, list[int]] = {}
    asked = prompts(draw)
    for number, prompt in enumerate(asked):  # they come while others decode, and one in five leaves
        assert submit(engine, str(number), prompt, 12) is None
        for _ in range(draw.randrange(4)):
            report = engine.step()
            for delta in () if report is None else report.deltas:
                texts.setdefault(delta.request_id, []).extend(delta.token_ids)
    left = {str(number) for number in range(len(asked)) if number % 5 == 4 and str(number) in engine.scheduler.requests}
    for name in left:
        engine.cancel(messages.Cancel(name, "abort"))
    for name, said in finish(engine).items():
        texts.setdefault(name, []).extend(said)
    cut = [cut for _, cut in runner.cuts if cut is not None]
    assert 0 < len(cut) < len(runner.cuts)
    for number, prompt in enumerate(asked):
        if str(number) not in left:
            oracle.expect(prompt, texts[str(number)], 12)


def test_a_late_chunk_keeps_a_quarter_of_its_tokens_and_accounts_for_the_rest(compiled: None, tiny_llama: Path) -> None:
    layers, cuts = cuts_beside_a_stream(tiny_llama, AT_ONCE)
    assert cuts
    for plan, cut in cuts:
        tokens = len(plan.rows[-1].tokens)
        assert cut is not None
        assert cut.kept == (tokens + 3) // 4
        assert cut.equivalent_tokens == pytest.approx(
            (tokens + (layers - 1) * cut.kept) / layers
        )  # seen after the first layer
        short = plan.shortened(cut)
        assert (len(short.rows[-1].tokens), short.cut_tokens) == (cut.kept, tokens - cut.kept)
        assert cut.kept <= short.work.prefill_tokens <= tokens


def test_a_step_within_its_deadline_cuts_no_chunk(compiled: None, tiny_llama: Path) -> None:
    _, cuts = cuts_beside_a_stream(tiny_llama, NEVER)
    assert cuts
    assert all(cut is None for _, cut in cuts)


def test_a_pace_or_a_model_that_torch_runs_has_no_deadlines(
    compiled: None, tiny_llama: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert EngineLoop(options(tiny_llama)).scheduler.config.chunk_deadlines
    assert not EngineLoop(options(tiny_llama, pace=MODEL)).scheduler.config.chunk_deadlines
    monkeypatch.setattr(native, "LIBRARY", tmp_path / "absent")
    assert not EngineLoop(options(tiny_llama)).scheduler.config.chunk_deadlines
