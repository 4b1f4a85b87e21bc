"""The sizes of a model, and its fused decoder on tensors without memory."""

from dataclasses import dataclass
from typing import Final

import torch

from sluice_engine.backend.cuda.decoder import DecoderShape, FusedDecoder, FusedLayer, FusedWeights
from sluice_engine.backend.cuda.feed_forward.dense import Dense
from sluice_engine.backend.cuda.feed_forward.experts import Experts
from sluice_engine.backend.cuda.ops.products import Product, QuantisedWeight
from sluice_kernels.grouped_weights import GROUP, GroupedWeights
from sluice_kernels.kv_write import HeadNorm
from sluice_kernels.moe import ExpertWeights, RoutingRule
from sluice_kernels.paged import AttentionRule

META: Final = torch.device("meta")


@dataclass(frozen=True)
class ModelSizes:
    """The numbers of a config.json that kernels are specialised on. `experts` 0: no mixture of experts. `bits`: of the
    layers' weights, in groups of 128; 0: not quantised.
    """

    layers: int
    hidden: int
    inner: int
    heads: int
    kv_heads: int = 8
    head_dim: int = 128
    vocab: int = 128256
    positions: int = 8192
    experts: int = 0
    top_k: int = 0
    head_norm: bool = False  # queries and keys are normalised, as in Qwen3
    bits: int = 0
    dtype: torch.dtype = torch.bfloat16

    def decoder(self) -> FusedDecoder:
        """The decoder; all layers share one layer's tensors."""
        return FusedDecoder(self._weights(), DecoderShape(self.heads, self.kv_heads, self.head_dim, 1e-5))

    def _weights(self) -> FusedWeights:
        width, norm = self.head_dim, None
        if self.head_norm:
            norm = HeadNorm(self._weight(width), self._weight(width), 1e-6)
        layer = FusedLayer(
            norm_before=self._weight(self.hidden),
            query_key_value=self._product((self.heads + 2 * self.kv_heads) * width, self.hidden),
            head_norm=norm,
            rule=AttentionRule(width**-0.5),
            output=self._product(self.hidden, self.heads * width),
            norm_after=self._weight(self.hidden),
            feed_forward=self._feed_forward(),
        )
        rope = torch.empty((self.positions, width), dtype=torch.float32, device=META)
        embedding, head = (self._weight(self.vocab, self.hidden) for _ in range(2))
        return FusedWeights(embedding, (layer,) * self.layers, self._weight(self.hidden), Product(head, None), rope)

    def _feed_forward(self) -> Dense | Experts:
        if not self.experts:
            return Dense(self._product(2 * self.inner, self.hidden), self._product(self.hidden, self.inner))
        weights = ExpertWeights(
            self._weight(self.experts, 2 * self.inner, self.hidden), self._weight(self.experts, self.hidden, self.inner)
        )
        return Experts(self._weight(self.experts, self.hidden), RoutingRule(self.top_k), weights, None)

    def _product(self, out: int, inside: int) -> Product:
        if not self.bits:
            return Product(self._weight(out, inside), None)
        words = torch.empty(inside * self.bits // 32, out, dtype=torch.int32, device=META)
        scales = torch.empty(inside // GROUP, out, dtype=torch.float16, device=META)
        return Product(QuantisedWeight((GroupedWeights(words, scales, scales.to(torch.int16)),), self.bits), None)

    def _weight(self, *shape: int) -> torch.Tensor:
        return torch.empty(shape, dtype=self.dtype, device=META)


# As their config.json files have them.
KNOWN: Final = {
    "Llama-3.1-8B": ModelSizes(32, 4096, 14336, 32, positions=131072),
    "Llama-3.2-1B": ModelSizes(16, 2048, 8192, 32, head_dim=64, positions=131072),
    "Llama-3.2-3B": ModelSizes(28, 3072, 8192, 24, positions=131072),
    "Mistral-7B-v0.3": ModelSizes(32, 4096, 14336, 32, vocab=32768, positions=32768),
    "Qwen2.5-7B": ModelSizes(28, 3584, 18944, 28, 4, vocab=152064, positions=32768),
    "Qwen3-8B": ModelSizes(36, 4096, 12288, 32, vocab=151936, positions=40960, head_norm=True),
}
