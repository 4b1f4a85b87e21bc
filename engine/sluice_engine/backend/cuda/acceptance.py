"""Decides by a numerical comparison whether the fused decoder runs a loaded model.

If its logits, keys and values equal the module's within CLOSE, it runs the model; otherwise transformers' modules do.
With fp8 weights the model in its own dtype is the reference, within CLOSE_FP8.
"""

import logging
from dataclasses import dataclass, replace
from functools import partial
from typing import Final

import torch

from sluice_engine.backend.cuda.attention import Attention
from sluice_engine.backend.cuda.decoder import build_decoder
from sluice_engine.backend.cuda.ops import KERNELS
from sluice_engine.backend.cuda.ops.products import Quantised, unquantised
from sluice_engine.backend.cuda.ops.sharded import sharded
from sluice_engine.backend.parallel.group import Group
from sluice_engine.backend.probe import OutputMismatch, Probe, module_logits
from sluice_engine.model.decoder_parts import recognise
from sluice_engine.model.introspection import Structure
from sluice_engine.model.kv_cache import KVShape

_log = logging.getLogger(__name__)
# Relative to the largest logit, key or value; torch rounds after each operation, the kernels once.
CLOSE: Final = {torch.float32: 1e-3, torch.bfloat16: 0.1, torch.float16: 0.02}

CLOSE_FP8: Final = 0.25


@dataclass(frozen=True, slots=True)
class Fusing:
    """How a model is fused. `quantised`: the weights of quantised layers. `group`: the ranks that share the module."""

    attention: Attention
    quantised: Quantised = unquantised
    group: Group | None = None
    fp8: bool = False


@torch.inference_mode()
def fuse_forward(
    module: torch.nn.Module,
    structure: Structure,
    shape: KVShape,
    device: torch.device,
    how: Fusing,
) -> bool:
    """Replace the module's `forward` by the fused decoder if it computes this model. Returns False otherwise. Raises
    OutputMismatch.
    """
    group, ops = how.group, replace(KERNELS, decode=how.attention.decode, prefill=how.attention.prefill)
    parts = recognise(module, structure)
    if group is not None and parts is not None:
        ops = sharded(ops, group, parts.head.out_features)
    positions = getattr(module.config, "max_position_embeddings", None)
    if parts is None or positions is None or shape.dtype not in CLOSE:
        _log.info("the model's layers are run by transformers' modules, with the kernels' attention and norms")
        return False
    probe = Probe(shape, parts.head.out_features, positions, device)
    expected = probe.record(partial(module_logits, module))
    try:
        decoder = build_decoder(parts, shape.head_dim, max(positions, probe.positions), ops, how.quantised)
    except ValueError as error:
        _log.info("the model's layers are run by transformers' modules: the fused decoder does not have %s", error)
        return False
    module.forward = decoder
    close = CLOSE_FP8 if how.fp8 else CLOSE[shape.dtype]
    difference = probe.difference(partial(module_logits, module), expected, close)
    if difference is not None:
        raise OutputMismatch(difference)
    decoder.skip_checks()
    _log.info("the model's layers are run by the fused decoder, compared on %d tokens", probe.tokens)
    return True
