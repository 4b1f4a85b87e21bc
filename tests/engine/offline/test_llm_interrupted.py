"""Ctrl-C in offline use, wherever it comes: nothing is left queued, and the prefix cache holds what it says."""

import os
import signal
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from sluice_engine import LLM, SamplingParams, messages
from sluice_engine.backend.runner import Runner, StepResult
from sluice_engine.core.executor import RunningStep, StepPipeline

GREEDY = SamplingParams(max_tokens=8, temperature=0.0, ignore_eos=True)


def prompts(turn: int) -> list[list[int]]:
    """Several chunks each, other ones in each turn."""
    return [[2 + (7 * at + 13 * turn + 29 * index) % 120 for at in range(90)] for index in range(3)]


def start(folder: Path, overlap: bool) -> LLM:
    return LLM(folder, threads=1, kv_size=4 << 20, max_batched_tokens=32, overlap=overlap, speculation="off")


def said(llm: LLM, turn: int) -> list[tuple[int, ...]]:
    return [result.token_ids for result in llm.generate(prompts(turn), GREEDY)]


def nothing_left(llm: LLM) -> bool:
    """Nothing is queued, computed or held once an interrupted call is over."""
    llm._engine.step()  # reports that they have gone
    scheduler = llm._engine.scheduler
    scheduler.check()
    return scheduler.pool.held == 0 and not scheduler.requests and not llm._engine.has_work


def goes_on_like(calm: LLM, llm: LLM, turn: int) -> None:
    """The interrupted one is empty, and answers what it was interrupted at as one that never was."""
    assert nothing_left(llm)
    assert said(llm, turn) == said(calm, turn)


@pytest.fixture(params=[False, True], ids=["one by one", "overlapped"])
def pair(request: pytest.FixtureRequest, tiny_llama: Path) -> tuple[LLM, LLM]:
    """One to interrupt, and one that is left in peace."""
    return start(tiny_llama, request.param), start(tiny_llama, request.param)


@pytest.fixture(autouse=True)
def python_interrupts() -> Iterator[None]:
    """SIGINT raises KeyboardInterrupt, also where a shell started this in the background and so had it ignored."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


def once(number: int, act: Callable[[], None]) -> Callable[[], None]:
    """Acts when it is called for the n-th time."""
    calls = iter(range(number + 1))
    return lambda: act() if next(calls, None) == number else None


def interrupt() -> None:
    raise KeyboardInterrupt


def test_after_an_interrupted_wait_the_same_prompts_have_the_same_answers(
    pair: tuple[LLM, LLM], monkeypatch: pytest.MonkeyPatch
) -> None:
    llm, calm = pair
    begin = StepPipeline.begin
    for turn in range(8):
        strike = once(turn, interrupt)

        def begun(*arguments: object, strike: Callable[[], None] = strike) -> RunningStep:
            flight = begin(*arguments)  # type: ignore[arg-type]

            def result() -> StepResult:
                strike()
                return flight.result()

            return replace(flight, result=result)

        with monkeypatch.context() as patched, pytest.raises(KeyboardInterrupt):
            patched.setattr(llm._engine._pipeline, "begin", lambda *arguments: begun(llm._engine._pipeline, *arguments))
            llm.generate(prompts(turn), GREEDY)
        goes_on_like(calm, llm, turn)


def test_a_signal_while_a_step_is_prepared_waits_for_its_end(
    pair: tuple[LLM, LLM], monkeypatch: pytest.MonkeyPatch
) -> None:
    llm, calm = pair
    prepare = Runner.prepare
    for turn in range(4):
        strike = once(turn, lambda: os.kill(os.getpid(), signal.SIGINT))

        def prepared(runner: Runner, plan: object, strike: Callable[[], None] = strike) -> object:
            strike()
            return prepare(runner, plan)  # type: ignore[arg-type]

        with monkeypatch.context() as patched, pytest.raises(KeyboardInterrupt):
            patched.setattr(Runner, "prepare", prepared)
            llm.generate(prompts(turn), GREEDY)
        goes_on_like(calm, llm, turn)


@pytest.mark.parametrize("refused", [False, True])
def test_a_failed_submission_leaves_no_request_queued(
    tiny_llama: Path, refused: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    llm = start(tiny_llama, overlap=True)
    real, strike = llm._engine.submit, once(2, interrupt)

    def submit(message: messages.Submit) -> messages.Rejected | None:
        if refused and message.request_id.endswith("-2"):
            return messages.Rejected(message.request_id, "queue_full", 1.0, "no place")
        if not refused:
            strike()
        return real(message)

    with monkeypatch.context() as patched, pytest.raises(RuntimeError if refused else KeyboardInterrupt):
        patched.setattr(llm._engine, "submit", submit)
        llm.generate(prompts(0), GREEDY)
    assert nothing_left(llm)
