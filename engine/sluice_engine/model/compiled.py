"""Whether a loaded model is run by the compiled decoder, decided by trying it: same logits, or torch runs the model."""

import logging
from dataclasses import replace

import torch

from sluice_engine.model.batch import Batch, RowGroup
from sluice_engine.model.decoder import NativeDecoder
from sluice_engine.model.kv import KVCache, KVShape
from sluice_engine.model.native import NativeAttention
from sluice_engine.model.recognise import recognise
from sluice_engine.model.structure import Structure

_log = logging.getLogger(__name__)
_TOKENS = 6
CLOSE = {torch.float32: 1e-3, torch.bfloat16: 0.1}  # relative to the largest logit


class Different(Exception):
    """The compiled decoder gave other logits. The module was taken apart: load it again."""


@torch.inference_mode()
def compile_forward(
    module: torch.nn.Module, structure: Structure, shape: KVShape, kernel: NativeAttention | None
) -> bool:
    """Put the compiled decoder in the place of the module's `forward`, if it computes this model. The weights are
    packed and the plain ones dropped, a product at a time. Raises `Different`."""
    parts = recognise(module, structure) if kernel is not None else None
    if kernel is None or parts is None:
        _log.info("the model's layers are run by torch")
        return False
    batch, cache = _probe(shape)
    want = _logits(module, batch, cache)
    try:
        decoder = NativeDecoder(parts, kernel, shape.head_dim)
    except ValueError as error:
        _log.info("the model's layers are run by torch: the compiled decoder does not have %s", error)
        return False
    module.forward = decoder
    got = _logits(module, batch, cache)
    if not bool(((got - want).abs() <= CLOSE[shape.dtype] * want.abs().amax(dim=-1, keepdim=True)).all()):
        raise Different
    _log.info("the model's layers are run by the compiled decoder")
    return True


def _probe(shape: KVShape) -> tuple[Batch, KVCache]:
    positions = torch.arange(_TOKENS)
    group = RowGroup(
        first=0,
        tokens=_TOKENS,
        rows=1,
        longest=_TOKENS,
        block_tables=torch.zeros(1, 1, dtype=torch.int64),
        context_lens=torch.tensor([_TOKENS]),
        query_positions=positions.unsqueeze(0),
        padded_index=None,
    )
    ids = positions.unsqueeze(0)
    cache = KVCache(replace(shape, grouped=None), 1, _TOKENS, torch.device("cpu"))
    return Batch(ids, ids, positions, positions, (group,)), cache


def _logits(module: torch.nn.Module, batch: Batch, cache: KVCache) -> torch.Tensor:
    output = module(
        input_ids=batch.input_ids,
        position_ids=batch.position_ids,
        use_cache=False,
        logits_to_keep=batch.logits_index,
        sluice_batch=batch,
        sluice_cache=cache,
    )
    logits: torch.Tensor = output.logits[0].float().clone()
    return logits
