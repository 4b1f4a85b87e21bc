"""The real engine at the pace of a small model on a processor: short prompts that arrive behind long ones.

A prompt of 1,625 tokens takes as long as one of 6,500 does with a model of 135 M parameters on two cores.
"""

import random
from pathlib import Path

import pytest
import torch
from transformers import LlamaConfig, LlamaForCausalLM

from sluice_engine.core.engine import EngineLoop
from sluice_perfmodel.step_time import StepTimeModel
from sluice_sim.cluster.request import RequestRecord
from sluice_sim.traces import Arrival
from tests.bench.fidelity.timeline import Timeline, serve_all
from tests.engine.conftest import SIZES
from tests.engine.families import SMALL
from tests.engine.oracle import options

# The long prompt takes 11 s and steps of 512 tokens 2.8 to 4 s, seven tokens 44 ms, a decoding step of one request 11 ms.
PACE = StepTimeModel(base=0.01, prefill_token=4.8e-3, prefill_context=2.4e-6, sequence=1e-3, kv_token=1e-8)
TTFT, ITL = 2.0, 0.1
LONG, SHORT, BATCH = 1625, 7, 512  # tokens
# The engine learns its step-time model from these: prompts of several lengths, alone and beside decoding requests.
LEARNING = [Arrival(3.0 * number, prompt, 60) for number, prompt in enumerate((7, 40, 800, 100, 1625, 200))]
BEGIN = 60.0  # s: the engine is idle again


class Clock:
    """A step takes exactly its pace."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now

    def wait(self, seconds: float) -> None:
        self.now += seconds


@pytest.fixture(scope="module")
def long_context(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The tiny model with a context of 2,048 tokens."""
    torch.manual_seed(0)
    folder = tmp_path_factory.mktemp("tiny-long-context")
    LlamaForCausalLM(LlamaConfig(**SMALL | SIZES | {"max_position_embeddings": 2048})).save_pretrained(folder)
    return folder


def served(folder: Path, policy: str, arrivals: list[Arrival]) -> tuple[list[RequestRecord], list[float]]:
    """The records of these arrivals, and the seconds of all steps with decoding requests since BEGIN."""
    clock, draw = Clock(), random.Random(2)
    engine = EngineLoop(
        options(folder, pace=PACE, policy=policy, speculation="off", max_num_seqs=56, max_batched_tokens=BATCH,
                concurrency_min=56, concurrency_max=56, itl_target=ITL, ttft_target=TTFT),
        clock=clock, sleep=clock.wait,
    )  # fmt: skip
    coming = [*LEARNING, *arrivals]
    prompts = [tuple(draw.randrange(2, 128) for _ in range(one.prompt)) for one in coming]
    timeline = Timeline(coming, prompts, clock, clock.wait)
    serve_all(engine, timeline)
    beside = [seconds for begun, work, seconds in timeline.begun_steps() if begun >= BEGIN and work.sequences]
    return timeline.records[len(LEARNING) :], beside


@pytest.mark.parametrize("streams", [0, 4])
@pytest.mark.parametrize("longs", [1, 4])
@pytest.mark.parametrize("policy", ["fcfs", "edf", "srpf"])
def test_short_prompts_behind_long_ones_have_their_first_token_within_a_second(
    long_context: Path, policy: str, longs: int, streams: int
) -> None:
    before = [Arrival(BEGIN, 100, 600) for _ in range(streams)]
    long = [Arrival(BEGIN + 1.0, LONG, 4)] * longs
    short = [Arrival(BEGIN + 1.5 + 0.5 * number, SHORT, 8) for number in range(8)]
    without, _ = served(long_context, policy, [*before, *long])
    records, beside = served(long_context, policy, [*before, *long, *short])
    assert all(one.ttft is not None and one.ttft <= 1.0 for one in records[-8:])
    for one, same in zip(records[streams:-8], without[streams:], strict=True):
        assert one.ttft is not None and same.ttft is not None
        assert one.ttft <= 1.3 * same.ttft
    assert max(beside) <= 1.05 * ITL
