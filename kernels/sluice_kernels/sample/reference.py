"""Sampling in plain torch: the specification of the kernels. Parameters are columns by slot, one slot per request.

Order: logit bias, penalties, mask; then argmax, or for a temperature of at least GREEDY_BELOW a draw after temperature,
min-p, top-k and top-p. It is the order of the engine's sampler on a CPU.
"""

from dataclasses import dataclass
from typing import Final

import torch

GREEDY_BELOW: Final = 1e-5  # such a temperature may round to 0 in float32, and 0 / 0 is NaN
NO_TOKEN: Final = -1
LOWEST: Final = -9999.0  # replaces −∞, which JSON cannot represent


@dataclass(frozen=True)
class Penalties:
    """counts [slots, vocabulary] int32: occurrences in the output; seen [slots, vocabulary] bool: in prompt or output.
    The penalties are float32 [slots].
    """

    counts: torch.Tensor
    seen: torch.Tensor
    repetition: torch.Tensor
    frequency: torch.Tensor
    presence: torch.Tensor


@dataclass(frozen=True)
class Bias:
    """Added to single scores: the first counts[slot] of ids [slots, most] int32 and values [slots, most] float32."""

    ids: torch.Tensor
    values: torch.Tensor
    counts: torch.Tensor  # [slots] int32


@dataclass(frozen=True)
class Draws:
    """By slot: temperature, min_p float32; top_k int32, 0 for all; top_p float64; seeds int64."""

    temperature: torch.Tensor
    min_p: torch.Tensor
    top_k: torch.Tensor
    top_p: torch.Tensor
    seeds: torch.Tensor


@dataclass(frozen=True)
class Rows:
    """Of each row of logits: slots int32, positions int64; mask [rows, ceil(vocabulary / 32)] int32, a bit per allowed
    token, or None.
    """

    slots: torch.Tensor
    positions: torch.Tensor
    mask: torch.Tensor | None = None


def sample_reference(
    logits: torch.Tensor, rows: Rows, draws: Draws, penalties: Penalties | None, bias: Bias | None
) -> torch.Tensor:
    """logits [rows, vocabulary] → tokens [rows] int64, NO_TOKEN for a row with NaN, +∞ or no finite score."""
    scores = adjusted_reference(logits, rows, penalties, bias)
    chosen = torch.full((len(logits),), NO_TOKEN, dtype=torch.int64)
    uniforms = uniform_reference(draws.seeds[rows.slots.long()], rows.positions)
    for row, slot in enumerate(rows.slots.tolist()):
        best, place = scores[row].max(-1)
        if not bool(best.isfinite()):
            continue
        chosen[row] = (
            place if draws.temperature[slot] < GREEDY_BELOW else _drawn(scores[row], draws, slot, uniforms[row])
        )
    return chosen


def adjusted_reference(
    logits: torch.Tensor, rows: Rows, penalties: Penalties | None, bias: Bias | None
) -> torch.Tensor:
    """Scores [rows, vocabulary] float32 with bias, penalties and mask. Repetition as in CTRL (Keskar et al., 2019),
    frequency and presence as in the OpenAI API; only seen tokens are penalised.
    """
    scores, slots = logits.float().clone(), rows.slots.long()
    if bias is not None:
        for row, slot in enumerate(slots.tolist()):
            count = int(bias.counts[slot])
            scores[row].index_add_(0, bias.ids[slot, :count].long(), bias.values[slot, :count])
    if penalties is not None:
        repetition, frequency, presence = (
            each[slots][:, None] for each in (penalties.repetition, penalties.frequency, penalties.presence)
        )
        counts = penalties.counts[slots]
        turned = torch.where(scores > 0, scores / repetition, scores * repetition)
        turned = turned - (frequency * counts + presence * (counts > 0))
        scores = torch.where(penalties.seen[slots], turned, scores)
    if rows.mask is not None:
        column = torch.arange(logits.shape[1])
        allowed = rows.mask[:, column // 32] >> (column % 32) & 1
        scores = scores.masked_fill(allowed == 0, -torch.inf)
    return scores


def uniform_reference(seeds: torch.Tensor, positions: torch.Tensor) -> torch.Tensor:
    """One float64 number in [0, 1) per (seed, position), both int64: two rounds of SplitMix64's finaliser (Steele et al.,
    2014), bit for bit the engine's generator.
    """
    mixed = _mixed(_mixed(seeds.long()) + positions.long() * _signed(0x9E3779B97F4A7C15))
    return _shifted(mixed, 11).double() * 2.0**-53


def logprobs_reference(
    logits: torch.Tensor, tokens: torch.Tensor, count: int
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Of the raw logits: the tokens' logprobs [rows] and the `count` largest, values and ids [rows, count], of a tie the
    lower id first. Float32, at least LOWEST. NO_TOKEN is taken as token 0; a row with NaN or +∞ is unspecified.

    The sum is float64: torch's float32 one is 3e-5 off for a vocabulary of 128,256.
    """
    table = torch.log_softmax(logits.double(), -1)
    order = table.sort(dim=-1, descending=True, stable=True)
    chosen = table.gather(-1, tokens.clamp(min=0)[:, None])[:, 0].clamp(min=LOWEST)
    return chosen.float(), order.values[:, :count].clamp(min=LOWEST).float(), order.indices[:, :count]


def _drawn(scores: torch.Tensor, draws: Draws, slot: int, uniform: torch.Tensor) -> torch.Tensor:
    """Inverts the cumulative distribution: over descending scores with top-k or top-p, else over the tokens' ids."""
    scaled = (scores - scores.max()) / draws.temperature[slot]
    weights = scaled.exp()
    weights = weights.masked_fill(weights < draws.min_p[slot], 0.0).double()
    top_k, top_p = int(draws.top_k[slot]), draws.top_p[slot]
    ids = torch.arange(len(scores))
    if top_k > 0 or top_p < 1.0:
        ids = scaled.sort(descending=True, stable=True).indices
        weights = weights[ids]
        if 0 < top_k < len(scores):
            weights[top_k:] = 0.0
        before = weights.cumsum(0) - weights
        before[0] = -1.0  # the most likely token is always kept
        weights = weights.masked_fill(before >= top_p * weights.sum(), 0.0)
    cumulative = weights.cumsum(0)
    target = torch.minimum(uniform * cumulative[-1], torch.nextafter(cumulative[-1], torch.zeros_like(uniform)))
    return ids[torch.searchsorted(cumulative, target, right=True)]


def _signed(value: int) -> int:
    return value - (1 << 64) if value >= 1 << 63 else value


def _shifted(value: torch.Tensor, bits: int) -> torch.Tensor:
    """A logical shift to the right of int64."""
    return value >> bits & (1 << 64 - bits) - 1


def _mixed(value: torch.Tensor) -> torch.Tensor:
    value = value + _signed(0x9E3779B97F4A7C15)
    value = (value ^ _shifted(value, 30)) * _signed(0xBF58476D1CE4E5B9)
    value = (value ^ _shifted(value, 27)) * _signed(0x94D049BB133111EB)
    return value ^ _shifted(value, 31)
