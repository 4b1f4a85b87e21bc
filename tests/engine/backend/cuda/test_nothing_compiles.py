"""Nothing compiles after ready: the kernels of 10,000 random steps of the scheduler are among those of the warm-up.

Model, runner and scheduler are the engine's, on tensors without values. Launches are recorded, and the sampler's tokens are
drawn by the test.
"""

import random
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Literal

import pytest
import torch

from sluice_engine.backend.batch_builder import StepInputs
from sluice_engine.backend.cuda.device_queue import Wait, Work
from sluice_engine.backend.cuda.graphs import Replay
from sluice_engine.backend.cuda.runner import GraphRunner, PendingDecode
from sluice_engine.backend.runner import StepResult
from sluice_engine.control.limit_controller import LimitController
from sluice_engine.control.step_deadline import Deadline
from sluice_engine.core.warmup import warm_up
from sluice_engine.limits import Limits
from sluice_engine.model.kv_cache import KVShape
from sluice_engine.model.layer_groups import group_layers
from sluice_engine.model.loaded import LoadedModel
from sluice_engine.request import Request
from sluice_engine.sampling_params import SamplingParams
from sluice_engine.scheduler import Scheduler, SchedulerConfig
from sluice_kernels import launch
from tests.engine.backend.cuda.test_no_synchronisation import BF16, META, Model

STEPS = 10_000
BATCHED_TOKENS, VOCABULARY = 512, 512
Key = tuple[object, ...]


class SamplingQueue:
    """Executes the sampling alone: copies to the host have no values, and replays launch nothing anew."""

    def put(self, work: Work) -> None:
        if work.func.__name__ == "sample":  # type: ignore[attr-defined]
            work()

    def mark(self) -> Wait:
        return lambda: None


def capture(work: Work) -> Replay:
    """Runs the work once; its replays launch no kernel anew."""
    work()
    return lambda: None


class ValuelessRunner(GraphRunner):
    """The runner with drawn tokens in place of the sampler's: tensors without values have no logits to sample from."""

    dice = random.Random(7)

    def _forward(self, inputs: StepInputs, result: StepResult, deadline: Deadline | None = None) -> dict[str, int]:
        batch = inputs.batch
        with torch.inference_mode():
            self.decode_step.decoder(batch.input_ids, batch.position_ids, batch.logits_index, batch, self.cache)
        return {name: self.dice.randrange(8) for name in inputs.logits_rows.request_ids}

    def _decode(self, pending: PendingDecode) -> StepResult:
        step = pending.step
        self._complete(pending)
        assert pending.wait is not None
        return StepResult([self.dice.randrange(8) for _ in step.plan.rows])


@dataclass(frozen=True)
class Shape:
    """A model and its limits. `windows`: of its layers. 31 sequences: no tensor of a step is aligned by luck."""

    heads: int
    kv_heads: int
    windows: tuple[int | None, ...] = (None,)
    sequences: int = 31
    length: int = 1500
    speculation: Literal["on", "off"] = "on"
    experts: int = 0
    top_k: int = 0

    def config(self) -> SchedulerConfig:
        windows = group_layers(self.windows).windows
        return SchedulerConfig(
            num_blocks=600,
            block_size=16,
            max_num_seqs=self.sequences,
            max_model_length=self.length,
            windows=windows,
            host_blocks=20,
            speculation=self.speculation,
        )

    def runner(self, config: SchedulerConfig) -> ValuelessRunner:
        groups = group_layers(self.windows)
        sizes = (self.heads, self.kv_heads, 64, VOCABULARY, self.length, self.experts, self.top_k)
        made = Model(len(self.windows), 512, 1024, *sizes)
        decoder = made.step().decoder
        model = LoadedModel(
            module=SimpleNamespace(forward=decoder),
            device=META,
            dtype=BF16,
            kv_shape=KVShape(len(self.windows), self.kv_heads, 64, BF16, groups),
            max_model_length=self.length,
            vocab_size=VOCABULARY,
            eos_ids=frozenset(),
        )
        return ValuelessRunner(model, decoder, config, SamplingQueue(), capture)


def requests(dice: random.Random, index: int, most: int) -> Iterator[Request]:
    """One to four requests: short and long prompts, shared prefixes, samples of one prompt, features of the host."""
    for number in range(dice.choice([1, 1, 2, 4])):
        length = dice.choice([1, 2, 3, 8, 9, 33, 120, 600, 1100])
        prefix = [dice.randrange(2)] * dice.choice([0, 16, 64])
        known = (prefix + [dice.randrange(4) for _ in range(length)])[:most]
        sampling = SamplingParams(
            max_tokens=dice.choice([1, 2, 20, 90]),
            temperature=dice.choice([0.0, 1.0]),
            logprobs=dice.choice([None, None, None, 1]),
            presence_penalty=dice.choice([0.0, 0.0, 1.0]),
            logit_bias=dice.choice([{}, {}, {3: 1.0}]),
        )
        yield Request(f"{index}-{number}", known, sampling.max_tokens or 1, arrived_at=0.0, sampling=sampling)


@pytest.mark.parametrize(
    "shape",
    [
        Shape(8, 2, speculation="off"),
        Shape(4, 4, windows=(None, 40, 40), sequences=16),
        Shape(16, 1, sequences=6, length=300),
        Shape(8, 2, speculation="off", experts=4, top_k=2),
    ],
    ids=["group of 4", "windows", "group of 16", "experts"],
)
def test_the_kernels_of_random_steps_are_those_of_the_warm_up(shape: Shape) -> None:
    dice, config, kinds = random.Random(shape.sequences), shape.config(), Counter[str]()
    limits = Limits(concurrency_max=shape.sequences, max_batched_tokens=BATCHED_TOKENS)
    with launch.recording(90) as launches:
        runner = shape.runner(config)
        warm_up(runner, config, BATCHED_TOKENS, VOCABULARY)
        warmed: set[Key] = {one.key for one in launches}
        scheduler = Scheduler(config, LimitController(limits))
        for index in range(STEPS // 3):
            if len(scheduler.requests) < 2 * shape.sequences and dice.random() < 0.05:
                for request in requests(dice, index, shape.length - 1):
                    scheduler.submit(request)
            launches.clear()
            plan = scheduler.plan(float(index))
            if plan is None:
                continue
            result = runner.run(plan)
            assert not result.errors
            scheduler.settle(plan, result.sampled, float(index), result.errors, result.accepted)
            new = {one.key for one in launches} - warmed
            assert not new, (index, [len(row.tokens) for row in plan.rows], sorted(map(str, new)))
            kinds[plan.mode.value] += 1
            kinds["decode only"] += len(launches) <= 2  # those of the sampling
            kinds["adjusted"] += any(one.kernel.__name__ == "_adjust" for one in launches)
            kinds["mixed"] += len({len(row.tokens) == 1 for row in plan.rows}) == 2
    usual = "drafting" if shape.speculation == "on" else "decode only"
    assert kinds[usual] > STEPS // 100 < kinds["mixed"], kinds
    assert kinds["adjusted"] > 20, kinds
