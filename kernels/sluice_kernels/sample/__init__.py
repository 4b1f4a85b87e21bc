"""Sampling with every feature of a request by slot, and logprobs: Triton on CUDA, plain torch elsewhere."""

import torch

from sluice_kernels import arguments, launch
from sluice_kernels.sample.configs import MOST_LOGPROBS, MOST_VOCABULARY
from sluice_kernels.sample.reference import (
    NO_TOKEN,
    Bias,
    Draws,
    Penalties,
    Rows,
    logprobs_reference,
    sample_reference,
)

__all__ = ["NO_TOKEN", "Bias", "Draws", "Penalties", "Rows", "can_use", "sample", "token_logprobs"]


def can_use(vocabulary: int, dtype: torch.dtype) -> str | None:
    """None if the kernels support this, else the reason."""
    if not 1 <= vocabulary <= MOST_VOCABULARY:
        return f"sample supports a vocabulary of 1 to {MOST_VOCABULARY}, not {vocabulary}"
    if dtype not in arguments.FLOATS:
        return f"sample supports float32, float16 and bfloat16, not {dtype}"
    return None


def sample(
    logits: torch.Tensor, rows: Rows, draws: Draws, penalties: Penalties | None = None, bias: Bias | None = None
) -> torch.Tensor:
    """Samples one token per row of logits [rows, vocabulary] → [rows] int64, NO_TOKEN without a finite largest score.

    On CUDA no data is copied to the host. Raises ValueError for an argument that does not match.
    """
    _check_logits(logits)
    _check_rows(logits, rows)
    slots = _check_draws(logits, draws)
    if penalties is not None:
        _check_penalties(logits, penalties, slots)
    if bias is not None:
        _check_bias(logits, bias, slots)
    if launch.is_compiled(logits):
        from sluice_kernels.sample.triton import sample_triton

        return sample_triton(logits, rows, draws, penalties, bias)
    return sample_reference(logits, rows, draws, penalties, bias)


def token_logprobs(
    logits: torch.Tensor, tokens: torch.Tensor, count: int
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Of raw logits [rows, vocabulary]: the logprobs of tokens [rows], and the `count` largest, values and ids [rows,
    count]; of a tie the lower id first. Raises ValueError for an argument that does not match.
    """
    _check_logits(logits)
    _check_column("tokens", tokens, logits, logits.shape[0], torch.int64)
    most = min(MOST_LOGPROBS, logits.shape[1])
    arguments.check("count", 0 <= count <= most, f"0 to {most}", count)
    if launch.is_compiled(logits):
        from sluice_kernels.sample.logprobs import logprobs_triton

        return logprobs_triton(logits, tokens, count)
    return logprobs_reference(logits, tokens, count)


def _check_logits(logits: torch.Tensor) -> None:
    arguments.check_shape("logits", logits, "[rows, vocabulary]", None, None)
    arguments.check_dtype("logits", logits, *arguments.FLOATS)
    arguments.check_rows("logits", logits)
    arguments.check_supported("logits", can_use(logits.shape[1], logits.dtype))


def _check_column(name: str, tensor: torch.Tensor, logits: torch.Tensor, size: int | None, dtype: torch.dtype) -> None:
    arguments.check_shape(name, tensor, "[rows]" if size == logits.shape[0] else "[slots]", size)
    arguments.check_dtype(name, tensor, dtype)
    arguments.check_contiguous(name, tensor)
    arguments.check_device(logits, **{name: tensor})


def _check_table(name: str, tensor: torch.Tensor, logits: torch.Tensor, rows: int, dtype: torch.dtype) -> None:
    arguments.check_shape(name, tensor, "[slots, …]", rows, tensor.shape[-1])
    arguments.check_dtype(name, tensor, dtype)
    arguments.check_contiguous(name, tensor)
    arguments.check_device(logits, **{name: tensor})


def _check_rows(logits: torch.Tensor, rows: Rows) -> None:
    _check_column("rows.slots", rows.slots, logits, logits.shape[0], torch.int32)
    _check_column("rows.positions", rows.positions, logits, logits.shape[0], torch.int64)
    if rows.mask is not None:
        words = -(-logits.shape[1] // 32)
        arguments.check_shape("rows.mask", rows.mask, "[rows, words]", logits.shape[0], words)
        arguments.check_dtype("rows.mask", rows.mask, torch.int32)
        arguments.check_rows("rows.mask", rows.mask)
        arguments.check_device(logits, **{"rows.mask": rows.mask})


def _check_draws(logits: torch.Tensor, draws: Draws) -> int:
    """Returns the number of slots."""
    _check_column("draws.temperature", draws.temperature, logits, None, torch.float32)
    slots = len(draws.temperature)
    _check_column("draws.min_p", draws.min_p, logits, slots, torch.float32)
    _check_column("draws.top_k", draws.top_k, logits, slots, torch.int32)
    _check_column("draws.top_p", draws.top_p, logits, slots, torch.float64)
    _check_column("draws.seeds", draws.seeds, logits, slots, torch.int64)
    return slots


def _check_penalties(logits: torch.Tensor, penalties: Penalties, slots: int) -> None:
    for name, tensor, dtype in (("counts", penalties.counts, torch.int32), ("seen", penalties.seen, torch.bool)):
        arguments.check_shape(f"penalties.{name}", tensor, "[slots, vocabulary]", slots, logits.shape[1])
        _check_table(f"penalties.{name}", tensor, logits, slots, dtype)
    for name in ("repetition", "frequency", "presence"):
        _check_column(f"penalties.{name}", getattr(penalties, name), logits, slots, torch.float32)


def _check_bias(logits: torch.Tensor, bias: Bias, slots: int) -> None:
    arguments.check_shape("bias.ids", bias.ids, "[slots, most]", slots, None)
    _check_table("bias.ids", bias.ids, logits, slots, torch.int32)
    arguments.check_shape("bias.values", bias.values, "[slots, most]", *bias.ids.shape)
    _check_table("bias.values", bias.values, logits, slots, torch.float32)
    _check_column("bias.counts", bias.counts, logits, slots, torch.int32)
