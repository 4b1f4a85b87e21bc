"""Runs a whole forward pass in one call of the compiled decoder (`engine/native/decoder`), with weights packed for
it.

With few rows per step, torch spends more time on calls between the matrix products of a layer than on computation. One
call per step keeps the threads awake from the embedding to the logits.
"""

import ctypes
import logging
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray

from sluice_engine.backend.cpu.huge_pages import zeroed_memory
from sluice_engine.backend.cpu.native import NativeAttention, StepStruct, step_struct
from sluice_engine.backend.cpu.structs import Decoder, DecoderLayer, Product, Step, Work
from sluice_engine.backend.cpu.tiles import TILE_LEVEL, product_rows
from sluice_engine.config import Quantization
from sluice_engine.control.step_deadline import Cut, Deadline
from sluice_engine.model.batch import Batch
from sluice_engine.model.decoder_parts import DecoderParts, LayerParts
from sluice_engine.model.kv_cache import KVCache

_log = logging.getLogger(__name__)
_PLAIN, _ADDED, _GATED, _SCORES = range(4)  # `enum kind` of kernels.h
_DTYPES = (torch.float32, torch.bfloat16)
_AREA_BYTES = 32 << 20
_ALIGNED = 64
_FIRST_ANGLES = 2048  # positions whose rotation is computed initially; doubled as needed


@dataclass(slots=True)
class Output:
    """The part of a forward pass's output that the runner reads; the next pass overwrites all of it but `cut`."""

    scores: torch.Tensor  # [at least count · vocab] float32, rounded to the model's dtype
    largest: tuple[NDArray[np.int64], NDArray[np.float32]]  # [count] index of each row's largest logit, and that logit
    vocab: int
    cut: Cut | None = None  # set if the chunk was truncated at the deadline

    @property
    def logits(self) -> torch.Tensor:
        """[1, count, vocab] float32"""
        count = len(self.largest[0])
        return self.scores[: count * self.vocab].view(1, count, self.vocab)


@dataclass(frozen=True, slots=True)
class _Described:
    """A batch as the library reads it."""

    steps: tuple[StepStruct, ...]  # one per layer group
    work: ctypes.Array[Work]
    positions: int  # that the block tables can hold: above all of the batch's


@dataclass(slots=True)
class _Angles:
    """cos and sin of the first positions, [positions, dim / 2] each, computed by the model's own rotary module."""

    rotary: torch.nn.Module
    dtype: torch.dtype
    parts: tuple[torch.Tensor, torch.Tensor] | None = None

    def upto(self, positions: int) -> tuple[int, int]:
        """Addresses of cos and sin for all positions below this number. Raises ValueError if the halves of a head
        rotate by different angles.
        """
        if self.parts is None or len(self.parts[0]) < positions:
            count = max(_FIRST_ANGLES, 1 << (positions - 1).bit_length())
            both = self.rotary(torch.empty(0, dtype=self.dtype), torch.arange(count).unsqueeze(0))
            half = both[0].shape[-1] // 2
            if not all(torch.equal(part[..., :half], part[..., half:]) for part in both):
                raise ValueError("the halves of a head are rotated by different angles")
            cosine, sine = (part[0, :, :half].to(self.dtype).contiguous() for part in both)
            self.parts = (cosine, sine)
        return self.parts[0].data_ptr(), self.parts[1].data_ptr()


class NativeDecoder:
    """Replaces a model's `forward`. It consumes the parts: each weight is packed, quantised for `int8`, and then dropped.

    Raises ValueError for sizes or dtypes that the compiled code does not support, before any weight is dropped.
    """

    def __init__(
        self, parts: DecoderParts, kernel: NativeAttention, head_dim: int, quantization: Quantization = "none"
    ) -> None:
        self._kernel, self._library = kernel, kernel.library
        self._int8 = int(quantization == "int8")
        self._decode = kernel.decode
        self._scratch_bytes = self._library.sluice_scratch
        self._scratch_bytes.restype = ctypes.c_int64
        self._library.sluice_packed_rows.restype = self._library.sluice_packed_bytes.restype = ctypes.c_int64
        self._heads, self._dtype = parts.heads, parts.embedding.weight.dtype
        self._kept: list[object] = []  # tensors that the structs point to
        self._tile_rows: dict[tuple[int, int], int] = {}  # by outputs and inputs of a product
        self._area = torch.empty(0, dtype=torch.uint8)
        self._used = 0  # bytes of the area
        self._buffer = torch.empty(0, dtype=torch.uint8)
        self._logits = torch.empty(0)
        self._best, self._highest = np.empty(0, dtype=np.int64), np.empty(0, dtype=np.float32)
        self._cache: KVCache | None = None
        self._angles = _Angles(parts.rotary, self._dtype)
        self._check(parts, head_dim)
        self._layers = (DecoderLayer * len(parts.layers))()
        tied = parts.tied
        for index, layer in enumerate(parts.layers):
            self._pack_layer(self._layers[index], layer)
        head = self._packed((parts.head,), _SCORES)
        self._decoder = Decoder(
            len(parts.layers),
            parts.embedding.embedding_dim,
            parts.layers[0].dense.down.in_features,
            parts.head.out_features,
            self._layers,
            self._keep(parts.norm_last.weight),
            head,
            parts.epsilon,
        )
        self._embedding = None if tied else parts.embedding  # None: the library embeds by the head's weight
        if tied:
            _drop(parts.embedding)

    def __call__(
        self,
        input_ids: torch.Tensor,
        position_ids: torch.Tensor,
        logits_to_keep: torch.Tensor,
        sluice_batch: Batch,
        sluice_cache: KVCache,
        use_cache: bool = False,
        sluice_deadline: Deadline | None = None,
    ) -> Output:
        """input_ids and position_ids [1, T], logits_to_keep [N] → logits [1, N, vocab]. With a deadline, the last
        tokens of the flat batch may be dropped; `Output.cut` reports the truncation.

        Raises RuntimeError when the library rejects the step.
        """
        self._attach(sluice_cache)
        described = self.describe(sluice_batch, sluice_cache)
        work, count, vocab = described.work, logits_to_keep.shape[0], self._decoder.vocab
        if len(self._best) < count:
            self._logits = torch.empty(count * vocab)
            self._best, self._highest = np.empty(count, dtype=np.int64), np.empty(count, dtype=np.float32)
        cosine, sine = self._angles.upto(described.positions)
        hidden = None if self._embedding is None else self._embedding(input_ids).contiguous()
        step = Step(
            input_ids.data_ptr() if hidden is None else None,
            None if hidden is None else hidden.data_ptr(),
            position_ids.data_ptr(),
            logits_to_keep.data_ptr(),
            count,
            cosine,
            sine,
            self._scratch(work[0], count),
            self._logits.data_ptr(),
            best=self._best.ctypes.data,
            highest=self._highest.ctypes.data,
        )
        tokens = input_ids.shape[1]
        if sluice_deadline is not None:
            step.seconds, step.share = sluice_deadline.seconds, sluice_deadline.share
            step.firm = tokens - sluice_deadline.tokens
        code = self._decode(ctypes.byref(self._decoder), work, ctypes.byref(step), self._kernel.level)
        if code:
            raise RuntimeError(f"the compiled decoder rejected a step of {tokens} tokens (code {code})")
        cut = None
        if sluice_deadline is not None and step.kept < tokens:
            layers = len(self._layers)
            cut = Cut(kept=step.kept - step.firm, equivalent_tokens=step.spent / layers - step.firm)
        return Output(self._logits, (self._best[:count], self._highest[:count]), vocab, cut)

    def describe(self, batch: Batch, cache: KVCache) -> _Described:
        """The batch for the library, kept with it: once it is prepared, its step begins with less work."""
        found = batch.native.get(self._heads)
        if isinstance(found, _Described):
            return found
        groups, keys = (batch, *batch.others), cache.layers[0][0]
        steps = tuple(step_struct(each, self._heads, keys, self._dtype, self._kernel) for each in groups)
        work = (Work * len(steps))(*(each.work for each in steps))
        blocks = max(group.block_tables.shape[1] for group in batch.groups)
        described = _Described(steps, work, blocks * keys.shape[1])
        batch.native[self._heads] = described
        return described

    def _check(self, parts: DecoderParts, head_dim: int) -> None:
        layer = parts.layers[0]
        kv_heads = layer.query_key_value[1].out_features // head_dim
        work = Work(heads=parts.heads, kv_heads=kv_heads, dim=head_dim, block_size=1)
        work.bf16 = int(self._dtype == torch.bfloat16)
        sizes = Decoder(hidden=parts.embedding.embedding_dim, inner=layer.dense.down.in_features)
        sizes.head.int8 = self._int8
        if self._dtype not in _DTYPES:
            raise ValueError(f"weights of {self._dtype}")
        if self._library.sluice_can_decode(ctypes.byref(sizes), ctypes.byref(work), self._kernel.level):
            raise ValueError(f"sizes or instructions (hidden {sizes.hidden}, inner {sizes.inner}, {self._dtype})")
        self._angles.upto(1)

    def _pack_layer(self, target: DecoderLayer, layer: LayerParts) -> None:
        target.query_key_value = self._packed(layer.query_key_value, _PLAIN)
        target.output = self._packed((layer.output,), _ADDED)
        target.gate_up = self._packed(layer.dense.gate_up, _GATED)
        target.down = self._packed((layer.dense.down,), _ADDED)
        target.norm_before = self._keep(layer.norm_before.weight)
        target.norm_after = self._keep(layer.norm_after.weight)
        target.norm_query = self._keep(layer.norm_query.weight) if layer.norm_query else None
        target.norm_key = self._keep(layer.norm_key.weight) if layer.norm_key else None
        target.window = layer.rule.window or 0
        target.scale = layer.rule.scale
        target.softcap = layer.rule.softcap or 0.0

    def _packed(self, linears: tuple[torch.nn.Linear, ...], kind: int) -> Product:
        weight = torch.cat([linear.weight for linear in linears]) if len(linears) > 1 else linears[0].weight
        biases = [linear.bias for linear in linears]
        bias = None
        if any(each is not None for each in biases):
            bias = torch.cat(
                [
                    weight.new_zeros(linear.out_features) if each is None else each
                    for linear, each in zip(linears, biases, strict=True)
                ]
            )
        product = Product(None, None, weight.shape[1], weight.shape[0], kind, self._int8)
        bf16, level = int(self._dtype == torch.bfloat16), self._kernel.level
        rows = self._library.sluice_packed_rows(ctypes.byref(product), level)
        packed = self._memory(self._library.sluice_packed_bytes(ctypes.byref(product), bf16, level))
        packed_bias = self._memory(rows * 4) if bias is not None else None
        self._library.sluice_pack(
            ctypes.byref(product),
            ctypes.c_void_p(weight.contiguous().data_ptr()),
            ctypes.c_void_p(bias.data_ptr() if bias is not None else None),
            bf16,
            ctypes.c_void_p(packed),
            ctypes.c_void_p(packed_bias),
            level,
        )
        for linear in linears:
            _drop(linear)
        product.packed, product.bias = packed, packed_bias
        product.tile_rows = self._rows_for_tiles(product)
        return product

    def _rows_for_tiles(self, product: Product) -> int:
        """Rows from which on AMX tiles compute it, measured once for each shape; 0: never."""
        if self._kernel.level < TILE_LEVEL:
            return 0
        shape = product.outer, product.inner
        if shape not in self._tile_rows:
            bf16 = self._dtype == torch.bfloat16
            self._tile_rows[shape] = product_rows(self._library, product, bf16, self._kernel.choose)
            found = f"from {self._tile_rows[shape]} rows on" if self._tile_rows[shape] else "never"
            _log.info("products of %d outputs by %d inputs by AMX tiles: %s", *shape, found)
        return self._tile_rows[shape]

    def _memory(self, size: int) -> int:
        """The address of `size` bytes of zeroed memory."""
        begin = -(-self._used // _ALIGNED) * _ALIGNED
        if begin + size > len(self._area):
            self._area, begin = zeroed_memory(max(size, _AREA_BYTES)), 0
            self._kept.append(self._area)
        self._used = begin + size
        return self._area.data_ptr() + begin

    def _keep(self, tensor: torch.Tensor) -> int:
        dense = tensor.detach().contiguous()
        self._kept.append(dense)
        return dense.data_ptr()

    def _attach(self, cache: KVCache) -> None:
        if self._cache is not cache:
            self._cache = cache
            for layer, (keys, values), group in zip(self._layers, cache.layers, cache.group_of, strict=True):
                layer.key_cache, layer.value_cache, layer.group = keys.data_ptr(), values.data_ptr(), group

    def _scratch(self, work: Work, count: int) -> int:
        size = self._scratch_bytes(ctypes.byref(self._decoder), ctypes.byref(work), ctypes.c_int64(count))
        if len(self._buffer) < size:
            self._buffer = torch.empty(size, dtype=torch.uint8)
        return self._buffer.data_ptr()


def _drop(module: torch.nn.Module) -> None:
    """Release the module's parameters."""
    for name, _ in list(module.named_parameters(recurse=False)):
        setattr(module, name, None)
