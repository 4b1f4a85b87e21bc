"""A decode step at the sizes of real models reads no value on the host: it runs on meta tensors, which have none."""

from collections import Counter
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
import torch

from sluice_engine.backend.cuda.buffers import BufferShape, DecodeBuffers
from sluice_engine.backend.cuda.decode_step import DecodeStep
from sluice_engine.backend.cuda.device_queue import HostQueue
from sluice_engine.backend.cuda.ops import KERNELS
from sluice_engine.backend.cuda.ops.sharded import sharded
from sluice_engine.backend.cuda.precompile.sizes import META, ModelSizes
from sluice_engine.backend.cuda.readback import Readback
from sluice_engine.backend.cuda.sampling.columns import DeviceSampling
from sluice_engine.backend.cuda.sampling.offsets import WideOffsets
from sluice_engine.model.kv_cache import KVCache, KVShape
from sluice_engine.sampling.grammar_masks import PackedMasks
from sluice_engine.sampling.logit_bias import Offsets
from sluice_engine.sampling.params_table import SlotTable
from sluice_engine.sampling.token_mask import packed_mask
from sluice_engine.sampling_params import SamplingParams
from sluice_kernels import launch

BF16 = torch.bfloat16
SLOTS, BLOCK, BLOCKS = 256, 16, 4096


class Model(ModelSizes):
    """A model of these sizes, whose steps have no values."""

    def step(self) -> DecodeStep:
        cache = KVCache(KVShape(self.layers, self.kv_heads, self.head_dim, BF16), BLOCKS, BLOCK, META)
        buffers = DecodeBuffers(BufferShape(SLOTS, self.positions // BLOCK, 1), META, SLOTS, BLOCK)
        sampling = DeviceSampling.allocated(SLOTS, self.vocab, META)
        logits = torch.empty((SLOTS, self.vocab), dtype=BF16, device=META)
        return DecodeStep(self.decoder(), cache, buffers, sampling, Readback(SLOTS, 200, META), logits)


ONCE_PER_LAYER = ("_kv_write", "_attend_split", "_silu_mul")
MODELS = {"8B": Model(32, 4096, 14336, 32), "70B": Model(80, 8192, 28672, 64)}
MIXTURES = {
    "8x7B": Model(32, 4096, 14336, 32, vocab=32000, experts=8, top_k=2),
    "30B-A3B": Model(48, 2048, 768, 32, 4, vocab=151936, experts=128, top_k=8),
}


@pytest.mark.parametrize("size", [1, 8, 256])
@pytest.mark.parametrize("name", MODELS)
def test_a_decode_step_runs_on_tensors_without_values(name: str, size: int) -> None:
    step, layers = MODELS[name].step(), MODELS[name].layers
    with launch.recording(90) as launches:
        step(size)
        step.sample(size, adjusted=False)
    counts = Counter(one.kernel.__name__ for one in launches)
    expected = {"_rms_norm": 2 * layers + 1, "_choose": 1} | dict.fromkeys(ONCE_PER_LAYER, layers)
    assert {kernel: counts[kernel] for kernel in expected} == expected
    assert set(counts) - set(expected) <= {"_merge_splits"}  # of attention, where it splits the context


@pytest.mark.parametrize("size", [1, 8, 256])
def test_a_step_with_penalties_offsets_and_masks_runs_on_tensors_without_values(size: int) -> None:
    model = MODELS["8B"]
    step, queue, table = model.step(), HostQueue(), SlotTable(SLOTS)
    table.join(0, SamplingParams(presence_penalty=1.0, temperature=0.5, top_k=40))
    masks = PackedMasks([size - 1], packed_mask([5], model.vocab)[None])
    with launch.recording(90) as launches:
        step(size)
        step.sampling.upload(table)
        step.sampling.offsets.join(0, Offsets(np.array([3]), np.array([1.5], np.float32), np.array([2]), 10))
        step.sampling.offsets.advance(np.array([0]), np.array([10]))
        step.sampling.offsets.upload(queue)
        step.sampling.masks.upload(0, step.sampling.masks.write(0, masks), size)
        step.sample(size, adjusted=True, logprobs=5)
    with launch.recording(90) as more:
        places, values = torch.empty(2000, dtype=torch.int64, device=META), torch.empty(2000, device=META)
        step.sample(size, adjusted=True, logprobs=200, wide=[WideOffsets(size - 1, places, values)])
    assert Counter(one.kernel.__name__ for one in more) == {"_adjust": 1, "_choose": 1}
    (adjust,) = (one for one in launches if one.kernel.__name__ == "_adjust")
    given = {"counts": "*i32", "bias_ids": "*i32", "mask": "*i32", "logits": "*bf16", "scores": "*fp32"}
    assert {name: adjust.types[name] for name in given} == given
    counts = Counter(one.kernel.__name__ for one in launches)
    assert counts["_choose"] == counts["_logprobs"] == 1


@pytest.mark.parametrize("size", [1, 8, 256])
@pytest.mark.parametrize("name", MIXTURES)
def test_a_mixture_of_experts_runs_on_tensors_without_values(name: str, size: int) -> None:
    step, layers = MIXTURES[name].step(), MIXTURES[name].layers
    with launch.recording(90) as launches:
        step(size)
    counts = Counter(one.kernel.__name__ for one in launches)
    for kernel in ("_route", "_place_pairs", "_expert_gate_up", "_expert_down", "_combine"):
        assert counts[kernel] == layers
    assert counts["_silu_mul"] == 0


class RankWithoutValues:
    """Rank 0 of eight, whose operations move no value. `calls` counts them."""

    rank, size = 0, 8

    def __init__(self) -> None:
        self.calls: Counter[str] = Counter()

    def sum(self, tensor: torch.Tensor) -> torch.Tensor:
        self.calls["sum"] += 1
        return tensor

    def gather(self, tensor: torch.Tensor) -> torch.Tensor:
        self.calls["gather"] += 1
        return tensor.new_empty(self.size, *tensor.shape)

    def broadcast(self, tensor: torch.Tensor) -> None:
        self.calls["broadcast"] += 1

    def least(self, number: int) -> int:
        return number


@pytest.mark.parametrize("size", [1, 256])
def test_a_rank_of_eight_runs_on_tensors_without_values(size: int) -> None:
    whole, group = MODELS["70B"], RankWithoutValues()
    part = Model(80, 8192, 28672 // 8, 64 // 8, 1, vocab=whole.vocab // 8)
    step = replace(
        part.step(),
        sampling=DeviceSampling.allocated(SLOTS, whole.vocab, META),
        scores=torch.empty((SLOTS, whole.vocab), dtype=BF16, device=META),
    )
    step.decoder._ops = sharded(KERNELS, group, whole.vocab)
    step.sampling.masks.share = group.broadcast
    masks = PackedMasks([size - 1], packed_mask([5], whole.vocab)[None])
    with launch.recording(90) as launches:
        step(size)
        step.sampling.masks.upload(0, step.sampling.masks.write(0, masks), size)
        step.sample(size, adjusted=True)
    counts = Counter(one.kernel.__name__ for one in launches)
    assert all(counts[kernel] == part.layers for kernel in ONCE_PER_LAYER)
    assert group.calls == {"sum": 2 * part.layers + 1, "gather": 1, "broadcast": 1}


@pytest.mark.parametrize(
    "read",
    [
        lambda tensor: tensor.sum().item(),
        lambda tensor: tensor.cpu(),
        lambda tensor: tensor.nonzero(),
        lambda tensor: bool(tensor.any()),
        lambda tensor: tensor.tolist(),
    ],
    ids=["item", "cpu", "nonzero", "bool", "tolist"],
)
def test_reading_a_value_of_the_step_fails_in_this_proof(read: Callable[[torch.Tensor], object]) -> None:
    step = MODELS["8B"].step()

    def reading(*arguments: object, **named: object) -> torch.Tensor:
        read(step.readback.sampled)
        return plain(*arguments, **named)

    plain = step.ops.logits
    step.decoder._ops = replace(step.ops, logits=reading)
    with launch.recording(90), pytest.raises((RuntimeError, NotImplementedError)):
        step(8)
