"""Nothing compiles after ready: the kernels of 10,000 random steps of the scheduler are among those of the warm-up.

Model, runner and scheduler are the engine's, on tensors without values. Launches are recorded, and the sampler's tokens are
drawn by the test. Models are run by the fused decoder, or by transformers' modules with the kernels inside.
"""

import random
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import partial
from itertools import count
from typing import Literal

import pytest
import torch
from transformers import AutoModelForCausalLM, Gemma2Config, OlmoeConfig, PreTrainedConfig

from sluice_engine.backend.cuda.attention import Heads, choose_attention
from sluice_engine.backend.cuda.eager import EagerRunner
from sluice_engine.backend.cuda.modules import KernelExperts, swap_modules
from sluice_engine.backend.cuda.precompile.sizes import META, ModelSizes
from sluice_engine.backend.cuda.precompile.valueless import ValuelessRunner, valueless_model
from sluice_engine.backend.cuda.sampling import offsets
from sluice_engine.backend.runner import Runner, StepResult
from sluice_engine.backend.step_inputs import StepInputs
from sluice_engine.control.limit_controller import LimitController
from sluice_engine.control.step_deadline import Deadline
from sluice_engine.core.warmup import warm_up
from sluice_engine.limits import Limits
from sluice_engine.model import attention
from sluice_engine.model.introspection import observe
from sluice_engine.model.layer_groups import group_layers
from sluice_engine.model.loaded import LoadedModel
from sluice_engine.request import Request
from sluice_engine.sampling_params import SamplingParams
from sluice_engine.scheduler import Scheduler, SchedulerConfig
from sluice_kernels import launch
from sluice_kernels.moe import ExpertWeights

STEPS = 10_000
BATCHED_TOKENS, VOCABULARY = 512, 512
Key = tuple[object, ...]


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
    bits: int = 0
    modules: PreTrainedConfig | None = None  # of a model that transformers' modules run

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

    def runner(self, config: SchedulerConfig, modules: LoadedModel | None) -> Runner:
        if modules is not None:
            return ValuelessModules.compiled(modules, config, fixed_tables=True)
        groups = group_layers(self.windows)
        sizes = ModelSizes(
            len(self.windows), 512, 1024, self.heads, self.kv_heads, 64, VOCABULARY, self.length, self.experts, self.top_k,
            bits=self.bits,
        )  # fmt: skip
        model, decoder = valueless_model(sizes, groups, self.length)
        return ValuelessRunner(model, decoder, config, partial(random.Random(7).randrange, 8))


class ValuelessModules(EagerRunner):
    """Modules on tensors without values; tokens are drawn, because logits without values cannot be sampled from."""

    dice = random.Random(7)

    @torch.inference_mode()
    def _forward(self, inputs: StepInputs, result: StepResult, deadline: Deadline | None = None) -> dict[str, int]:
        self._output(inputs.batch, {})
        return {name: self.dice.randrange(8) for name in inputs.logits_rows.request_ids}


def valueless_modules(config: PreTrainedConfig, length: int) -> LoadedModel:
    """A model of this config as the backend prepares it, and then without values. `length`: of its requests, in tokens."""
    attention.register()
    module = AutoModelForCausalLM.from_config(config, attn_implementation=attention.NAME, dtype=torch.bfloat16)
    module.eval().requires_grad_(False)
    structure = observe(module, torch.device("cpu"))
    shape = structure.kv_shape(module.dtype)
    heads = Heads(shape.head_dim, config.num_attention_heads // shape.kv_heads, module.dtype)
    swap_modules(module, structure, choose_attention("sluice", heads))
    module.to(META)
    for child in module.modules():
        if isinstance(child, KernelExperts):
            gate_up, down = (each.to(META) for each in (child.layer.weights.gate_up, child.layer.weights.down))
            child.layer = replace(child.layer, router=child.layer.router.to(META), weights=ExpertWeights(gate_up, down))
    return LoadedModel(module, META, module.dtype, shape, length, VOCABULARY, frozenset())


def requests(dice: random.Random, index: int, most: int) -> Iterator[Request]:
    """One to four requests: short and long prompts, shared prefixes, samples of one prompt, features of the host."""
    for number in range(dice.choice([1, 1, 2, 4])):
        length = dice.choice([1, 2, 3, 8, 9, 33, 120, 600, 1100])
        prefix = [dice.randrange(2)] * dice.choice([0, 16, 64])
        known = (prefix + [dice.randrange(4) for _ in range(length)])[:most]
        sampling = SamplingParams(
            max_tokens=dice.choice([1, 2, 20, 90]),
            temperature=dice.choice([0.0, 1.0]),
            logprobs=dice.choice([None, None, None, 1, 30]),
            presence_penalty=dice.choice([0.0, 0.0, 1.0]),
            logit_bias=dice.choice([{}, {}, {3: 1.0}, {3: 1.0, 4: 1.0}]),  # two: more than the table holds
            bad_words=dice.choice([(), (), ((2,), (1, 0))]),
        )
        yield Request(f"{index}-{number}", known, sampling.max_tokens or 1, arrived_at=0.0, sampling=sampling)


SIZES = {"vocab_size": VOCABULARY, "hidden_size": 128, "intermediate_size": 256, "head_dim": 64, "pad_token_id": 0}
# Their steps launch all kernels anew: the attention of these heads has eight, four or two splits.
GEMMA = Gemma2Config(
    **SIZES, num_hidden_layers=3, num_attention_heads=8, num_key_value_heads=8, sliding_window=40,
    layer_types=["full_attention", "sliding_attention", "sliding_attention"],
)  # fmt: skip
OLMOE = OlmoeConfig(
    **SIZES | {"hidden_size": 512, "num_hidden_layers": 2, "num_attention_heads": 8, "num_key_value_heads": 8},
    num_experts=4, num_experts_per_tok=2,
)  # fmt: skip
SHAPES = {
    "group of 4": Shape(8, 2, speculation="off"),
    "windows": Shape(4, 4, windows=(None, 40, 40), sequences=16),
    "group of 16": Shape(16, 1, sequences=6, length=300),
    "experts": Shape(8, 2, speculation="off", experts=4, top_k=2),
    "4 bits": Shape(8, 2, speculation="off", bits=4),
    "8 bits": Shape(8, 2, sequences=80, bits=8),
    "modules": Shape(8, 8, windows=(None, 40, 40), modules=GEMMA),
    "modules with experts": Shape(8, 8, windows=(None, None), speculation="off", modules=OLMOE),
}
OF_EACH = -(-STEPS // len(SHAPES))


@pytest.mark.parametrize("shape", list(SHAPES.values()), ids=list(SHAPES))
def test_the_kernels_of_random_steps_are_those_of_the_warm_up(shape: Shape, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(offsets, "MOST_OFFSETS", 1)
    dice, config = random.Random(shape.sequences), shape.config()
    modes, kinds = Counter[str](), Counter[str]()  # of the steps that were executed
    limits = Limits(concurrency_max=shape.sequences, max_batched_tokens=BATCHED_TOKENS)
    modules = None if shape.modules is None else valueless_modules(shape.modules, shape.length)
    with launch.recording(90) as launches:
        runner = shape.runner(config, modules)
        warm_up(runner, config, BATCHED_TOKENS, VOCABULARY)
        warmed: set[Key] = {one.key for one in launches}
        scheduler = Scheduler(config, LimitController(limits))
        for index in count():
            if modes.total() == OF_EACH:
                break
            rate = 0.05 if index % 400 < 200 else 0.5  # a few sequences, then about as many as there may be
            if len(scheduler.requests) < 2 * shape.sequences and dice.random() < rate:
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
            modes[plan.mode.value] += 1
            graph = len(launches) <= 2 if modules is None else plan.certain  # no launches but those of the sampling
            kinds["decode only"] += graph and all(len(row.tokens) == 1 for row in plan.rows)
            kinds["adjusted"] += any(one.kernel.__name__ == "_adjust" for one in launches)
            kinds["mixed"] += len({len(row.tokens) == 1 for row in plan.rows}) == 2
    kinds += modes
    usual = "drafting" if shape.speculation == "on" else "decode only"
    assert kinds[usual] > STEPS // 100 < kinds["mixed"], kinds
    assert (kinds["adjusted"] > 20) == (modules is None), kinds  # the sampler of modules is the host's


@pytest.mark.parametrize("bits", [0, 4, 8])
def test_chunks_of_every_length_need_no_kernels_but_those_of_the_warm_up(bits: int) -> None:
    shape = Shape(8, 2, sequences=1, length=300, bits=bits)
    config = shape.config()
    with launch.recording(90) as launches:
        runner = shape.runner(config, None)
        warm_up(runner, config, BATCHED_TOKENS, VOCABULARY)
        warmed: set[Key] = {one.key for one in launches}
        launches.clear()
        scheduler = Scheduler(config, LimitController(Limits(concurrency_max=1, max_batched_tokens=BATCHED_TOKENS)))
        for length in range(1, 130):
            scheduler.submit(Request(str(length), [length] * length, 1, arrived_at=0.0))
            while (plan := scheduler.plan(0.0)) is not None:
                assert [len(row.tokens) for row in plan.rows] == [length]
                scheduler.settle(plan, runner.run(plan).sampled, 0.0)
    assert {one.key for one in launches} <= warmed
