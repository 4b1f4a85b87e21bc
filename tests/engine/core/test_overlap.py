"""A real model with steps that overlap: the same answers as one after the other, and nothing left behind."""

from pathlib import Path

import pytest

from sluice_engine import messages
from sluice_engine.core.engine import EngineLoop
from tests.engine.oracle import options, run, submit

ASKED: dict[str, dict[str, object]] = {
    "greedy": {},
    "drawn": {"temperature": 0.9, "seed": 3},
    "penalised": {"temperature": 0.7, "seed": 4, "repetition_penalty": 1.3, "frequency_penalty": 0.5},
    "scored": {"temperature": 0.8, "top_p": 0.9, "seed": 5, "logprobs": 2},
    "stopped": {"stop_token_ids": (17, 40, 80), "temperature": 1.0, "seed": 6},
}


@pytest.mark.parametrize("places", [2, 8])  # with two, a place is taken again while its last step runs
def test_overlapped_steps_give_the_same_answers(tiny_llama: Path, places: int) -> None:
    def answers(overlap: bool) -> dict[str, list[tuple[tuple[int, ...], object, int]]]:
        engine = EngineLoop(options(tiny_llama, overlap=overlap, concurrency_max=places, speculation="off"))
        for length, (name, params) in enumerate(ASKED.items(), start=5):
            for copy in range(2):
                prompt = [2 + (7 * at + length + copy) % 120 for at in range(9 * length)]
                submit(engine, f"{name}{copy}", prompt, 12 + 7 * copy, **params)
        found: dict[str, list[tuple[tuple[int, ...], object, int]]] = {}
        for report in run(engine):
            for delta in report.deltas:
                found.setdefault(delta.request_id, []).append((delta.token_ids, delta.finish, len(delta.logprobs)))
        assert engine.scheduler.pool.held == 0
        return found

    assert answers(overlap=True) == answers(overlap=False)


def test_a_running_step_is_finished_after_its_requests_were_cancelled(tiny_llama: Path) -> None:
    engine = EngineLoop(options(tiny_llama, overlap=True, speculation="off"))
    submit(engine, "a", [5, 6, 7], 50)
    engine.step()
    engine.cancel(messages.Cancel("a", "abort"))
    assert engine.scheduler.pool.held == 1  # a step writes it
    engine.finish_running_steps()
    assert engine.scheduler.pool.held == 0 and engine.finish_running_steps() == []
