"""A small quantiser that compensates errors: what it rounds away in one input of a layer, later inputs make up for.

GPTQ (Frantar et al., 2022, https://arxiv.org/abs/2210.17323, algorithm 1): with H = X·Xᵀ of a layer's inputs X on text, the
output's squared error of an error e in the weights is e·H·eᵀ. Inputs are quantised one by one, and the error of input j is
spread over the inputs behind it by row j of U, the upper Cholesky factor of H⁻¹. Inputs of large activations come first, as
in the authors' --act-order; groups stay those of neighbouring inputs (--static-groups), so that AWQ can hold them too.
"""

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from transformers import AutoModelForCausalLM

from tests.engine.quantised.packer import Format, Rounded

DAMPING = 0.05  # of the mean diagonal of H, for few tokens; the authors' --percdamp is 0.01
SHRINKS = (1.0, 0.9, 0.8, 0.7, 0.6)  # parts of a group's range that are tried
BLOCK = 64  # inputs whose errors are spread over the inputs behind the block at once


@dataclass(frozen=True)
class Inputs:
    """What a layer's inputs on text tell: the diagonal of H, the order of the inputs, and U in that order."""

    importance: torch.Tensor  # [inputs]
    order: torch.Tensor  # [inputs] int64
    factor: torch.Tensor  # [inputs, inputs]

    @classmethod
    def of(cls, x: torch.Tensor) -> "Inputs":
        """From x [tokens, inputs]. U is the inverse of R, if H = R·Rᵀ with R upper; the reversed H has such a factor."""
        hessian = x.T @ x
        importance = hessian.diagonal().clone()
        hessian.diagonal().add_(DAMPING * importance.mean())
        order = importance.argsort(descending=True)
        reverse = order.flip(0)
        upper = torch.linalg.cholesky(hessian[reverse][:, reverse]).flip(0, 1)
        identity = torch.eye(len(order))
        return cls(importance, order, torch.linalg.solve_triangular(upper, identity, upper=True))


@dataclass(frozen=True)
class Ranges:
    """The scale of each group, and the least and largest integer before its zero point is added: all [groups, outputs]."""

    scales: torch.Tensor
    least: torch.Tensor
    largest: torch.Tensor


@torch.inference_mode()
def compensated(folder: Path, ids: list[list[int]], form: Format) -> dict[str, Rounded]:
    """The projections of all layers by their weights' names, quantised in one forward pass over texts of equal length: each
    layer sees the outputs of those that are quantised already.
    """
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
    found: dict[str, Rounded] = {}
    last: list[tuple[torch.Tensor, Inputs]] = []  # query, key and value share their input, as gate and up do

    def quantise(name: str, layer: torch.nn.Linear, x: torch.Tensor) -> None:
        if not last or last[0][0] is not x:
            last[:] = [(x, Inputs.of(x.flatten(0, 1)))]
        found[f"{name}.weight"] = rounded = quantised_by(layer.weight, last[0][1], form)
        layer.weight.copy_(torch.from_numpy(rounded.dense().T))

    for name, layer in model.model.named_modules(prefix="model"):
        if isinstance(layer, torch.nn.Linear):
            layer.register_forward_pre_hook(lambda layer, given, name=name: quantise(name, layer, given[0]))
    model.model(torch.tensor(ids))
    return found


def quantised_by(weight: torch.Tensor, inputs: Inputs, form: Format) -> Rounded:
    """weight [outputs, inputs], quantised for these inputs."""
    factor, order, count = inputs.factor, inputs.order, weight.shape[1]
    ranges = ranges_of(weight, inputs.importance, form)
    inverse, groups = 1 / ranges.scales, (order // form.group).tolist()
    left = weight[:, order].T.contiguous()  # [inputs, outputs], in that order
    steps = torch.empty_like(left)  # integers, before the zero point is added
    for start in range(0, count, BLOCK):
        end = min(start + BLOCK, count)
        for row in range(start, end):
            group, now = groups[row], left[row]
            torch.mul(now, inverse[group], out=steps[row])
            torch.clamp(steps[row].round_(), ranges.least[group], ranges.largest[group], out=steps[row])
            now.addcmul_(steps[row], ranges.scales[group], value=-1).div_(factor[row, row])  # the error, as U has it
            left[row + 1 : end].addr_(factor[row, row + 1 : end], now, alpha=-1)
        left[end:].addmm_(factor[start:end, end:].T, left[start:end], alpha=-1)
    zeros = (-ranges.least).to(torch.int64).numpy()
    group_of = np.arange(count) // form.group
    values = steps[order.argsort()].to(torch.int64).numpy() + zeros[group_of]
    return Rounded(values, zeros, ranges.scales.numpy().astype(np.float16), group_of)


def ranges_of(weight: torch.Tensor, importance: torch.Tensor, form: Format) -> Ranges:
    """Of each group the shrunk range whose rounding alone costs least, with errors weighted by the diagonal of H."""
    most, found = 2**form.bits - 1, []
    for rows, weights in zip(weight.T.contiguous().split(form.group), importance.split(form.group), strict=True):
        low, high = rows.amin(0).clamp_max_(0), rows.amax(0).clamp_min_(0)
        tried = []
        for shrink in SHRINKS:
            scale = ((high - low) * (shrink / most)).clamp_min_(1e-4).half().float()
            least = (low * shrink / scale).round_().clamp_(-most, -1)  # GPTQ's first format stores zero - 1
            exact = rows / scale
            error = torch.clamp(exact.round(), least, least + most).sub_(exact).square_()
            tried.append((weights @ error * scale * scale, scale, least))
        costs, scales, least = (torch.stack(each) for each in zip(*tried, strict=True))
        best = costs.argmin(0, keepdim=True)
        found.append((scales.gather(0, best), least.gather(0, best)))
    scales, least = (torch.cat(each) for each in zip(*found, strict=True))
    return Ranges(scales, least, least + most)
