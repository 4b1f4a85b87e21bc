"""Replaces operations of a loaded model in place by fewer and faster ones with the same results, chosen by structure,
not by name.

- Linear layers of one module with the same input tensor (query, key and value; gate and up) are merged.
- RMS norms, recognised by their output on probe rows, become one torch call.
- On a CPU, weights are packed once into the layout of oneDNN's matrix product.

Each weight is replaced before the next one is processed, so at most one layer's weights are held twice. Residual
additions are unchanged. `engine/LOG.md` records the speedups and the attempts without effect.
"""

import logging
from collections import Counter
from dataclasses import dataclass

import torch
from torch.nn.functional import linear, rms_norm

from sluice_engine.model.introspection import SharedInputs, Structure

_log = logging.getLogger(__name__)
_CLOSE = {torch.float32: 1e-5, torch.bfloat16: 2e-2, torch.float16: 2e-3}  # relative to the largest value
_PACKED_DTYPES = {torch.float32, torch.bfloat16}
# Elements of a float32 weight from which packing is faster on a CPU; below, torch's own product has less call overhead.
_PAYS_FROM = 1 << 18


@dataclass(frozen=True, slots=True)
class Fused:
    """Number of replaced modules by kind."""

    merged: int
    norms: int
    packed: int


@torch.inference_mode()
def fuse(module: torch.nn.Module, structure: Structure, *, packs: bool, pays_from: int = _PAYS_FROM) -> Fused:
    """Apply all fusions; logits equal the plain model's within the dtype's tolerance. `packs`: weights are packed for
    the CPU's products, and float32 weights of fewer than `pays_from` elements are unchanged.
    """
    shared = _shared_weights(module)
    smallest = {torch.float32: pays_from if packs else 0}
    merged = sum(_merge(group, shared, smallest) for group in structure.shared_inputs)
    norms = _replace_norms(module)
    packed = _pack(module, shared, smallest) if packs else 0
    _log.info("fused: %d groups of linear layers merged, %d norms, %d weights packed", merged, norms, packed)
    return Fused(merged, norms, packed)


class MergedLinear(torch.nn.Module):
    """One matrix product for several linear layers with the same input. The first part called computes all of them."""

    def __init__(self, parts: list[torch.nn.Linear]) -> None:
        super().__init__()
        first = parts[0]
        self.sizes = [part.out_features for part in parts]
        with torch.device("meta"):
            self.product = torch.nn.Linear(first.in_features, sum(self.sizes), bias=first.bias is not None)
        self.product.weight = _frozen(torch.cat([part.weight for part in parts]))
        if first.bias is not None:
            self.product.bias = _frozen(torch.cat([part.bias for part in parts]))
        self._input: torch.Tensor | None = None
        self._outputs: tuple[torch.Tensor, ...] = ()
        self._requested = 0

    def part(self, index: int, tensor: torch.Tensor) -> torch.Tensor:
        """Output of the layer `index`: a view [..., out_features]. The result is released after every part was
        requested.
        """
        if self._input is not tensor:
            self._input, self._requested = tensor, 0
            self._outputs = self.product(tensor).split(self.sizes, dim=-1)
        output = self._outputs[index]
        self._requested += 1
        if self._requested == len(self.sizes):
            self._input, self._outputs = None, ()
        return output


class Part(torch.nn.Module):
    """Replaces one of the merged layers."""

    def __init__(self, merged: MergedLinear, index: int) -> None:
        super().__init__()
        self.merged = merged
        self.index = index

    def forward(self, tensor: torch.Tensor) -> torch.Tensor:
        """[..., in_features] → [..., out_features]"""
        return self.merged.part(self.index, tensor)


class PackedLinear(torch.nn.Module):
    """A linear layer with its weight in oneDNN's own layout; the plain weight is released."""

    def __init__(self, plain: torch.nn.Linear) -> None:
        super().__init__()
        self.in_features, self.out_features = plain.in_features, plain.out_features
        self.packed = torch.ops.mkldnn._reorder_linear_weight(plain.weight)
        self.bias = plain.bias
        self._product = torch.ops.mkldnn._linear_pointwise.default

    def forward(self, tensor: torch.Tensor) -> torch.Tensor:
        """[..., in_features] → [..., out_features]"""
        return self._product(tensor, self.packed, self.bias, "none", [], "")


class RMSNorm(torch.nn.Module):
    """torch's fused RMS norm, replacing a norm that computes the same in several operations."""

    def __init__(self, weight: torch.Tensor, epsilon: float) -> None:
        super().__init__()
        self.weight = _frozen(weight)
        self.epsilon = epsilon
        self._shape = tuple(weight.shape)

    def forward(self, tensor: torch.Tensor) -> torch.Tensor:
        """[..., D] → [..., D]"""
        return rms_norm(tensor, self._shape, self.weight, self.epsilon)


def _merge(group: SharedInputs, shared: set[int], smallest: dict[torch.dtype, int]) -> bool:
    parts = [getattr(group.parent, name) for name in group.names]
    if sum(part.weight.numel() for part in parts) < smallest.get(parts[0].weight.dtype, 0):
        return False
    layouts = {(part.in_features, part.weight.dtype, part.bias is None) for part in parts}
    distinct = len(set(group.names)) == len(group.names)  # a layer called twice on one tensor is a single layer
    if len(layouts) > 1 or not distinct or any(part.weight.data_ptr() in shared for part in parts):
        return False
    merged = MergedLinear(parts)
    for index, name in enumerate(group.names):
        setattr(group.parent, name, Part(merged, index))
    return True


def _replace_norms(module: torch.nn.Module) -> int:
    count = 0
    for name, child in list(module.named_modules()):
        replacement = as_rms_norm(child)
        if replacement is not None:
            module.set_submodule(name, replacement)
            count += 1
    return count


def as_rms_norm(module: torch.nn.Module) -> RMSNorm | None:
    """The module as torch's norm if both give the same result on rows of very different magnitude (so that epsilon
    matters), else None. The weight is used as it is, or as an offset from one (Gemma).
    """
    parameters = dict(module.named_parameters())
    epsilons = {value for value in vars(module).values() if isinstance(value, float) and 0 < value < 1}
    if list(parameters) != ["weight"] or parameters["weight"].dim() != 1 or not epsilons:
        return None
    weight = parameters["weight"]
    if any(True for _ in module.children()) or weight.dtype not in _CLOSE:
        return None
    sizes = torch.tensor([[1e-4], [1e-2], [1.0], [30.0]], device=weight.device)
    generator = torch.Generator().manual_seed(0)
    rows = torch.randn(4, weight.shape[0], generator=generator).to(weight.device)
    probe = (rows * sizes).to(weight.dtype).unsqueeze(0)
    try:
        want = module(probe)
    except (RuntimeError, TypeError, ValueError):  # does not take a single tensor: not a norm
        return None
    for epsilon in sorted(epsilons):
        for offset in (0.0, 1.0):
            candidate = RMSNorm(weight + offset if offset else weight, epsilon)
            if is_close(candidate(probe), want):
                return candidate
    return None


def _pack(module: torch.nn.Module, shared: set[int], smallest: dict[torch.dtype, int]) -> int:
    """Pack the weight of each plain linear layer, except one shared with the embedding, which would be held twice."""
    plain = {
        name: child
        for name, child in module.named_modules()
        if type(child) is torch.nn.Linear and child.weight.dtype in _PACKED_DTYPES
    }
    count = 0
    for name in list(plain):
        child = plain.pop(name)
        if child.weight.data_ptr() in shared or child.weight.numel() < smallest.get(child.weight.dtype, 0):
            continue
        if count == 0 and not _packing_works(child):
            return 0
        module.set_submodule(name, PackedLinear(child))
        count += 1
    return count


def _packing_works(plain: torch.nn.Linear) -> bool:
    """True if this build of torch has the packed product and its result equals the plain product's."""
    probe = torch.randn(2, plain.in_features, generator=torch.Generator().manual_seed(0)).to(plain.weight.dtype)
    try:
        got = PackedLinear(plain)(probe)
    except (RuntimeError, AttributeError, NotImplementedError) as error:
        _log.warning("weights are not packed, torch here cannot: %s", str(error).splitlines()[0])
        return False
    return is_close(got, linear(probe, plain.weight, plain.bias))


def is_close(got: torch.Tensor, want: torch.Tensor) -> bool:
    if got.shape != want.shape or got.dtype != want.dtype:
        return False
    row = want.float().abs().amax(dim=-1, keepdim=True)
    return bool(((got.float() - want.float()).abs() <= _CLOSE[want.dtype] * row).all())


def _shared_weights(module: torch.nn.Module) -> set[int]:
    """Addresses of parameters that more than one module holds (tied embeddings)."""
    owners = Counter(
        parameter.data_ptr() for child in module.modules() for parameter in child.parameters(recurse=False)
    )
    return {address for address, count in owners.items() if count > 1}


def _frozen(tensor: torch.Tensor) -> torch.nn.Parameter:
    return torch.nn.Parameter(tensor, requires_grad=False)
