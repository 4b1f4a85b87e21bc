"""Logit bias, penalties and mask in one pass over the logits."""

import torch
import triton
import triton.language as tl

from sluice_kernels import launch
from sluice_kernels.integers import cdiv
from sluice_kernels.sample.configs import EDIT_BLOCK
from sluice_kernels.sample.reference import Bias, Penalties, Rows


@triton.jit
def _adjust(  # type: ignore[no-untyped-def]
    logits,  # [rows, vocabulary]
    scores,  # [rows, vocabulary] float32
    slots,  # [rows]
    bias_ids,  # [slots, most] or None
    bias_values,  # [slots, most]
    bias_counts,  # [slots]
    counts,  # [slots, vocabulary] or None
    seen,  # [slots, vocabulary]
    repetition,  # [slots]
    frequency,  # [slots]
    presence,  # [slots]
    mask,  # [rows, words] or None
    stride,
    bias_stride,
    mask_stride,
    vocabulary,
    block: tl.constexpr,
):
    row = tl.program_id(0).to(tl.int64)
    column = tl.program_id(1) * block + tl.arange(0, block)
    inside = column < vocabulary
    slot = tl.load(slots + row).to(tl.int64)
    score = tl.load(logits + row * stride + column, mask=inside, other=0.0).to(tl.float32)
    if bias_ids is not None:
        for index in range(tl.load(bias_counts + slot)):
            token = tl.load(bias_ids + slot * bias_stride + index)
            score = tl.where(column == token, score + tl.load(bias_values + slot * bias_stride + index), score)
    if counts is not None:
        known = tl.load(seen + slot * vocabulary + column, mask=inside, other=0) != 0
        count = tl.load(counts + slot * vocabulary + column, mask=inside & known, other=0)
        factor = tl.load(repetition + slot)
        turned = tl.where(score > 0.0, tl.div_rn(score, factor), score * factor)
        lowered = tl.load(frequency + slot) * count.to(tl.float32)
        lowered += tl.where(count > 0, tl.load(presence + slot), 0.0)
        score = tl.where(known, turned - lowered, score)
    if mask is not None:
        word = tl.load(mask + row * mask_stride + column // 32, mask=inside, other=0)
        score = tl.where(((word >> (column % 32)) & 1) != 0, score, -float("inf"))
    tl.store(scores + row * vocabulary + column, score, mask=inside)


def adjusted(logits: torch.Tensor, rows: Rows, penalties: Penalties | None, bias: Bias | None) -> torch.Tensor:
    """Computes `adjusted_reference`; without anything to adjust, the logits as they are."""
    count, vocabulary = logits.shape
    if penalties is None and bias is None and rows.mask is None:
        return logits
    scores = launch.empty((count, vocabulary), torch.float32, logits.device)
    biases = (None, None, None) if bias is None else (bias.ids, bias.values, bias.counts)
    factors = (None,) * 5
    if penalties is not None:
        factors = (
            penalties.counts, penalties.seen.view(torch.int8),
            penalties.repetition, penalties.frequency, penalties.presence,
        )  # fmt: skip
    launch.launch(
        _adjust, (count, cdiv(vocabulary, EDIT_BLOCK)),
        (
            logits, scores, rows.slots, *biases, *factors, rows.mask, logits.stride(0),
            0 if bias is None else bias.ids.stride(0), 0 if rows.mask is None else rows.mask.stride(0), vocabulary,
        ),
        block=EDIT_BLOCK, num_warps=4,
    )  # fmt: skip
    return scores
