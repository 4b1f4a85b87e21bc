"""Logprobs of the sampled tokens and of the most likely ones, in one pass over the logits per value."""

import torch
import triton
import triton.language as tl

from sluice_kernels import launch
from sluice_kernels.sample.configs import BLOCK, WARPS


@triton.jit
def _next(logits, vocabulary, above, above_id, block: tl.constexpr):  # type: ignore[no-untyped-def]
    """The largest logit, of a tie the lowest id, that comes after (above, above_id)."""
    lane = tl.arange(0, block)
    best = tl.full([block], -float("inf"), tl.float32)
    place = tl.full([block], 0x7FFFFFFF, tl.int32)
    for start in range(0, vocabulary, block):
        column = start + lane
        logit = tl.load(logits + column, mask=column < vocabulary, other=-float("inf")).to(tl.float32)
        after = (logit < above) | ((logit == above) & (column > above_id))
        better = after & (column < vocabulary) & ((logit > best) | (place == 0x7FFFFFFF))
        best = tl.where(better, logit, best)
        place = tl.where(better, column, place)
    largest = tl.max(tl.where(place == 0x7FFFFFFF, -float("inf"), best), 0)
    return largest, tl.min(tl.where(best == largest, place, 0x7FFFFFFF), 0)


@triton.jit
def _logprobs(  # type: ignore[no-untyped-def]
    logits,  # [rows, vocabulary]
    tokens,  # [rows] int64
    chosen,  # [rows] float32
    values,  # [rows, count] float32
    ids,  # [rows, count] int64
    stride,
    vocabulary,
    count: tl.constexpr,
    block: tl.constexpr,
):
    row = tl.program_id(0).to(tl.int64)
    logits += row * stride
    logit, place = _next(logits, vocabulary, float("inf"), -1, block)
    lane = tl.arange(0, block)
    sums = tl.zeros([block], tl.float32)
    for start in range(0, vocabulary, block):
        score = tl.load(logits + start + lane, mask=start + lane < vocabulary, other=-float("inf")).to(tl.float32)
        sums += tl.exp(score - logit)
    normal = logit + tl.log(tl.sum(sums, 0))
    token = tl.maximum(tl.load(tokens + row), 0)
    tl.store(chosen + row, tl.maximum(tl.load(logits + token).to(tl.float32) - normal, -9999.0))
    for index in range(count):
        tl.store(values + row * count + index, tl.maximum(logit - normal, -9999.0))
        tl.store(ids + row * count + index, place.to(tl.int64))
        if index + 1 < count:
            logit, place = _next(logits, vocabulary, logit, place, block)


def logprobs_triton(
    logits: torch.Tensor, tokens: torch.Tensor, count: int
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Computes `logprobs_reference`."""
    rows, vocabulary = logits.shape
    chosen = launch.empty((rows,), torch.float32, logits.device)
    values = launch.empty((rows, count), torch.float32, logits.device)
    ids = launch.empty((rows, count), torch.int64, logits.device)
    if rows:
        launch.launch(
            _logprobs, (rows,), (logits, tokens, chosen, values, ids, logits.stride(0), vocabulary),
            count=count, block=BLOCK, num_warps=WARPS,
        )  # fmt: skip
    return chosen, values, ids
