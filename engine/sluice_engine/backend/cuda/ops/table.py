"""The table of operations that a fused decoder is made of: one before the layers, nine per layer, and three at the end of
a step. A mixture of experts has three or seven in place of the last three of its layer.

Each entry picks by its tensors' device: a Triton kernel or cuBLAS on CUDA, the kernel's reference on a CPU. No entry copies
data to the host on CUDA, so a decode step of them is captured in a CUDA graph.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Final

import torch
from torch.nn.functional import embedding, linear

from sluice_engine.backend.cuda.ops.products import product
from sluice_kernels.kv_write import kv_write, kv_write_unchecked
from sluice_kernels.moe import Routing, moe, route
from sluice_kernels.paged_decode import paged_decode, paged_decode_unchecked
from sluice_kernels.paged_prefill import paged_prefill, paged_prefill_unchecked
from sluice_kernels.rms_norm import rms_norm, rms_norm_unchecked
from sluice_kernels.sample import sample
from sluice_kernels.silu_mul import silu_mul, silu_mul_unchecked

Operation = Callable[..., torch.Tensor]


@dataclass(frozen=True, slots=True)
class Ops:
    """In the order of a layer. Arguments and results are those of the functions in `KERNELS`."""

    embed: Operation
    add_norm_before: Operation  # adds the previous layer's output to the residual
    query_key_value: Operation
    kv_write: Operation  # head norms and rotary embedding included
    decode: Operation  # attention of single tokens
    prefill: Operation  # attention of chunks
    output: Operation
    add_norm_after: Operation
    gate_up: Operation
    silu_mul: Operation
    down: Operation
    router: Operation
    route: Callable[..., Routing]
    experts: Operation
    shared_down: Operation
    shared_gate: Operation
    add_norm_last: Operation
    logits: Operation
    sample: Operation


KERNELS: Final = Ops(
    embed=embedding,
    add_norm_before=rms_norm,
    query_key_value=product,
    kv_write=kv_write,
    decode=paged_decode,
    prefill=paged_prefill,
    output=product,
    add_norm_after=rms_norm,
    gate_up=product,
    silu_mul=silu_mul,
    down=product,
    router=linear,
    route=route,
    experts=moe,
    shared_down=product,
    shared_gate=linear,
    add_norm_last=rms_norm,
    logits=linear,
    sample=sample,
)
_UNCHECKED: Final[dict[Operation, Operation]] = {
    kv_write: kv_write_unchecked,
    paged_decode: paged_decode_unchecked,
    paged_prefill: paged_prefill_unchecked,
    rms_norm: rms_norm_unchecked,
    silu_mul: silu_mul_unchecked,
}


def unchecked(ops: Ops) -> Ops:
    """The same without the checks of arguments, for a decoder that has computed a step with them: all its steps differ in
    the number of tokens alone.
    """
    return replace(
        ops,
        add_norm_before=_unchecked(ops.add_norm_before),
        kv_write=_unchecked(ops.kv_write),
        decode=_unchecked(ops.decode),
        prefill=_unchecked(ops.prefill),
        add_norm_after=_unchecked(ops.add_norm_after),
        silu_mul=_unchecked(ops.silu_mul),
        add_norm_last=_unchecked(ops.add_norm_last),
    )


def _unchecked(operation: Operation) -> Operation:
    return _UNCHECKED.get(operation, operation)
