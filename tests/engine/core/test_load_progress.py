"""The load of weights is reported with its rate and the time left, at most once a second."""

from pathlib import Path

import torch

from sluice_engine.backend.cuda.backend import CudaBackend
from sluice_engine.core.load_progress import LoadProgress
from sluice_engine.core.startup import LoadedEngine
from sluice_engine.messages import Loading
from tests.engine.backend.cuda.simulated_device import FixedMemory
from tests.engine.oracle import options

GB = 10**9


class Clock:
    now = 100.0

    def __call__(self) -> float:
        return self.now


def test_the_rate_and_the_time_left_are_those_of_the_bytes_so_far() -> None:
    seen: list[Loading] = []
    clock = Clock()
    progress = LoadProgress(seen.append, clock)
    for step in range(1, 9):
        clock.now += 0.5
        progress.on_bytes(step * GB, 16 * GB)
    assert [report.text for report in seen] == [
        "12 % of 16.0 GB at 2.0 GB/s, 7 s left",
        "25 % of 16.0 GB at 2.0 GB/s, 6 s left",
        "37 % of 16.0 GB at 2.0 GB/s, 5 s left",
        "50 % of 16.0 GB at 2.0 GB/s, 4 s left",
    ]
    assert [(report.phase, report.fraction, report.seconds) for report in seen[:2]] == [
        ("load", 0.125, 1.0),
        ("load", 0.25, 2.0),
    ]


def test_a_model_that_is_read_again_begins_again() -> None:
    seen: list[Loading] = []
    clock = Clock()
    progress = LoadProgress(seen.append, clock)
    for loaded in (10, 16, 1, 2):
        clock.now += 1.0
        progress.on_bytes(loaded * GB, 16 * GB)
    assert [report.text for report in seen] == [
        "62 % of 16.0 GB at 10.0 GB/s, 1 s left",
        "100 % of 16.0 GB",
        "6 % of 16.0 GB",
        "12 % of 16.0 GB at 1.0 GB/s, 14 s left",
    ]


def test_an_engine_that_starts_reports_the_load_of_its_weights(tiny_llama: Path) -> None:
    seen: list[Loading] = []

    def clock() -> float:  # each look at it is a second later
        clock_.now += 1.0
        return clock_.now

    clock_ = Clock()
    LoadedEngine(options(tiny_llama), seen.append, clock, CudaBackend(torch.device("cpu"), FixedMemory()))
    texts = [report.text for report in seen if report.phase == "load" and report.text]
    assert len(texts) > 3
    assert "/s, " in texts[0] and texts[0].endswith(" s left")
    assert texts[-1].startswith("100 % of ")
