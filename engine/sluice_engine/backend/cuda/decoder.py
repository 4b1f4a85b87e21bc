"""Runs a whole forward pass by the table of operations (`ops/table.py`), from the parts that `recognise` finds."""

from dataclasses import dataclass, replace

import torch

from sluice_engine.backend.cuda.feed_forward.dense import Dense, dense_of, dense_output
from sluice_engine.backend.cuda.feed_forward.experts import (
    Experts,
    check_experts,
    compile_experts,
    experts_of,
    experts_output,
)
from sluice_engine.backend.cuda.ops import KERNELS, Ops, unchecked
from sluice_engine.backend.cuda.ops.products import Product, Quantised, product_of, unquantised
from sluice_engine.backend.cuda.step_tensors import StepTensors, step_tensors
from sluice_engine.model.batch import Batch
from sluice_engine.model.decoder_parts import DecoderParts, DenseParts, ExpertParts, LayerParts
from sluice_engine.model.fusion import RMSNorm
from sluice_engine.model.kv_cache import KVCache
from sluice_kernels import kv_write, rms_norm, silu_mul
from sluice_kernels.kv_write import HeadNorm, PagedCache, Rope
from sluice_kernels.paged import AttentionRule, PagedKV

_ANY_ARCHITECTURE = 80  # only fp8 depends on it, and this decoder has none


@dataclass(slots=True)
class Output:
    """The part of a forward pass's output that the runner reads."""

    logits: torch.Tensor  # [1, N, vocab]


@dataclass(frozen=True, slots=True)
class FusedLayer:
    """The weights of one layer; the query, key and value projections are one product."""

    norm_before: torch.Tensor
    query_key_value: Product
    head_norm: HeadNorm | None
    rule: AttentionRule
    output: Product
    norm_after: torch.Tensor
    feed_forward: Dense | Experts


@dataclass(frozen=True, slots=True)
class DecoderShape:
    """Sizes that all layers share."""

    heads: int
    kv_heads: int
    head_dim: int
    epsilon: float


@dataclass(frozen=True, slots=True)
class FusedWeights:
    """All weights of a decoder. rope [positions, head_dim] float32: cosines, then sines."""

    embedding: torch.Tensor
    layers: tuple[FusedLayer, ...]
    norm_last: torch.Tensor
    head: Product
    rope: torch.Tensor


class FusedDecoder:
    """Replaces a model's `forward`, and computes the logits of a step from static tensors alone (`logits`)."""

    def __init__(self, weights: FusedWeights, shape: DecoderShape, ops: Ops = KERNELS) -> None:
        self._weights, self._shape, self._ops = weights, shape, ops

    def __call__(
        self,
        input_ids: torch.Tensor,
        position_ids: torch.Tensor,
        logits_to_keep: torch.Tensor,
        sluice_batch: Batch,
        sluice_cache: KVCache,
        use_cache: bool = False,
    ) -> Output:
        """input_ids and position_ids [1, T], logits_to_keep [N] → logits [1, N, vocab]."""
        return Output(self.logits(step_tensors(sluice_batch), sluice_cache).unsqueeze(0))

    def skip_checks(self) -> None:
        """Check the arguments of kernels no more."""
        self._ops = unchecked(self._ops)

    def compile_experts(self) -> None:
        """Compile the kernels of all mixtures of experts, so that no step does: which it needs depends on its tokens."""
        layers = (layer.feed_forward for layer in self._weights.layers)
        compile_experts(each for each in layers if isinstance(each, Experts))

    def logits(self, step: StepTensors, cache: KVCache) -> torch.Tensor:
        """The logits [N, vocab] of `step.logits_index`, or of all tokens. Writes the step's keys and values."""
        ops, weights, epsilon = self._ops, self._weights, self._shape.epsilon
        residual = ops.embed(step.tokens, weights.embedding)
        normed = ops.add_norm_before(residual, weights.layers[0].norm_before, epsilon)
        out = self._layer(weights.layers[0], normed, residual, step, (cache, 0))
        for index, layer in enumerate(weights.layers[1:], start=1):
            normed = ops.add_norm_before(out, layer.norm_before, epsilon, residual=residual)
            out = self._layer(layer, normed, residual, step, (cache, index))
        normed = ops.add_norm_last(out, weights.norm_last, epsilon, residual=residual)
        rows = normed if step.logits_index is None else normed.index_select(0, step.logits_index)
        return ops.logits(rows, weights.head.weight, weights.head.bias)

    def _layer(
        self,
        layer: FusedLayer,
        normed: torch.Tensor,
        residual: torch.Tensor,
        step: StepTensors,
        of: tuple[KVCache, int],
    ) -> torch.Tensor:
        """normed [T, hidden] → the layer's output [T, hidden], not yet added to the residual. `of`: cache and layer."""
        ops = self._ops
        merged = ops.query_key_value(normed, layer.query_key_value.weight, layer.query_key_value.bias)
        attended = self._attention(layer, merged, step, of)
        out = ops.output(attended.flatten(1), layer.output.weight, layer.output.bias)
        normed = ops.add_norm_after(out, layer.norm_after, self._shape.epsilon, residual=residual)
        if isinstance(layer.feed_forward, Dense):
            return dense_output(layer.feed_forward, normed, ops, ops.down)
        return experts_output(layer.feed_forward, normed, ops)

    def _attention(
        self, layer: FusedLayer, merged: torch.Tensor, step: StepTensors, of: tuple[KVCache, int]
    ) -> torch.Tensor:
        """merged [T, (heads + 2 · kv_heads) · head_dim] → [T, heads, head_dim]."""
        shape, (cache, index) = self._shape, of
        group, (keys, values) = cache.group_of[index], cache.layers[index]
        split = merged.view(len(merged), -1, shape.head_dim)
        query, key, value = split.split((shape.heads, shape.kv_heads, shape.kv_heads), dim=1)
        rope = Rope(self._weights.rope, step.positions)
        query = self._ops.kv_write(
            query, key, value, PagedCache(keys, values, step.slots[group]), rope, layer.head_norm
        )
        rows, chunks = len(step.contexts), step.chunks
        parts = []
        if rows:
            kv = PagedKV(keys, values, step.tables[group], step.contexts)
            parts.append(self._ops.decode(query[:rows], kv, layer.rule))
        if chunks is not None:
            kv = PagedKV(keys, values, chunks.tables[group], chunks.contexts)
            parts.append(self._ops.prefill(query[rows:], chunks.starts, kv, layer.rule))
        return parts[0] if len(parts) == 1 else torch.cat(parts)


def build_decoder(
    parts: DecoderParts, head_dim: int, positions: int, ops: Ops = KERNELS, quantised: Quantised = unquantised
) -> FusedDecoder:
    """The fused decoder of a recognised model. It consumes the parts: weights that are merged, or that `quantised` has, are
    dropped one by one.

    Raises ValueError for what the kernels do not support, before any weight is dropped.
    """
    kv_heads = parts.layers[0].query_key_value[1].out_features // head_dim
    shape = DecoderShape(parts.heads, kv_heads, head_dim, parts.epsilon)
    _check(parts, shape)
    weights = FusedWeights(
        embedding=parts.embedding.weight,
        layers=(),
        norm_last=parts.norm_last.weight,
        head=Product(parts.head.weight, parts.head.bias),
        rope=_rope(parts.rotary, positions, parts.embedding.weight.device),
    )
    layers = tuple(_fused(layer, parts.epsilon, quantised) for layer in parts.layers)
    return FusedDecoder(replace(weights, layers=layers), shape, ops)


def _check(parts: DecoderParts, shape: DecoderShape) -> None:
    """Raises ValueError with the sentence of the kernel that does not support these sizes."""
    dtype, group = parts.embedding.weight.dtype, shape.heads // shape.kv_heads
    reasons = [
        rms_norm.can_use(parts.embedding.embedding_dim, dtype, _ANY_ARCHITECTURE),
        kv_write.can_use(shape.head_dim, group, dtype, dtype, _ANY_ARCHITECTURE),
    ]
    for layer in parts.layers:
        if isinstance(layer.feed_forward, ExpertParts):
            check_experts(layer.feed_forward)
        for dense in layer.dense_parts:
            reasons.append(silu_mul.can_use(dense.down.in_features, "silu", dtype, _ANY_ARCHITECTURE))
    for reason in reasons:
        if reason is not None:
            raise ValueError(reason)


def _rope(rotary: torch.nn.Module, positions: int, device: torch.device) -> torch.Tensor:
    """The table of all positions, computed by the model's own rotary module. Raises ValueError if the halves of a head
    rotate by different angles.
    """
    at = torch.arange(positions, device=device).unsqueeze(0)
    both = rotary(torch.empty(0, dtype=torch.float32, device=device), at)
    half = both[0].shape[-1] // 2
    if not all(torch.equal(part[..., :half], part[..., half:]) for part in both):
        raise ValueError("the halves of a head are rotated by different angles")
    return torch.cat([part[0, :, :half] for part in both], dim=-1).contiguous()


def _fused(layer: LayerParts, epsilon: float, quantised: Quantised) -> FusedLayer:
    norm = None
    if layer.norm_query is not None and layer.norm_key is not None:
        norm = HeadNorm(_weight(layer.norm_query), _weight(layer.norm_key), epsilon)
    return FusedLayer(
        norm_before=_weight(layer.norm_before),
        query_key_value=product_of(layer.query_key_value, quantised),
        head_norm=norm,
        rule=AttentionRule(layer.rule.scale, layer.rule.window, layer.rule.softcap),
        output=product_of((layer.output,), quantised),
        norm_after=_weight(layer.norm_after),
        feed_forward=_feed_forward(layer.feed_forward, quantised),
    )


def _feed_forward(parts: DenseParts | ExpertParts, quantised: Quantised) -> Dense | Experts:
    return dense_of(parts, quantised) if isinstance(parts, DenseParts) else experts_of(parts)


def _weight(norm: RMSNorm) -> torch.Tensor:
    return norm.weight.detach().contiguous()
