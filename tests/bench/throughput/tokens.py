"""Checks tokens against plain transformers: each token is judged given the actual tokens before it.

The oracle reads a whole sequence at once, so that its verdict on one token does not depend on an earlier difference. In
float32 a token may differ from the oracle's only if the two logits are within 1e-4. In bfloat16 correct engines
disagree on near ties: there a token is right if its logit in float32 is within twice the largest error that plain
transformers in bfloat16 makes against float32 on the same sequences, because rounding alone can move two candidates
that far towards each other.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from transformers import AutoModelForCausalLM

TIE = 1e-4  # float32 logits


@dataclass(frozen=True, slots=True)
class Agreement:
    """All generated tokens of one engine against the oracle in float32. Logits have a spread of about 0.5."""

    tokens: int
    exact: int  # number of tokens that are the oracle's own choice
    worst: float  # largest lead of the oracle's choice over the chosen token, in logits
    allowed: float

    @property
    def holds(self) -> bool:
        """True if every token is right."""
        return self.worst <= self.allowed

    @property
    def share(self) -> float:
        """Share of tokens that equal the oracle's."""
        return self.exact / self.tokens


def compare(
    model: Path, prompts: Sequence[Sequence[int]], answers: Sequence[Sequence[int]], dtype: str, threads: int
) -> Agreement:
    """Judge `answers`, generated in `dtype` (float32 or bfloat16)."""
    torch.set_num_threads(threads)
    oracle = _load(model, torch.float32)
    rounded = _load(model, torch.bfloat16) if dtype == "bfloat16" else None
    tokens = exact = 0
    worst = error = 0.0
    for prompt, answer in zip(prompts, answers, strict=True):
        logits = _logits(oracle, prompt, answer)
        chosen = logits.gather(1, torch.tensor(answer)[:, None])[:, 0]
        behind = logits.max(dim=1).values - chosen
        tokens += len(answer)
        exact += int((behind == 0).sum())
        worst = max(worst, float(behind.max()))
        if rounded is not None:
            error = max(error, float((_logits(rounded, prompt, answer) - logits).abs().max()))
    return Agreement(tokens, exact, worst, max(TIE, 2 * error))


def _load(model: Path, dtype: torch.dtype) -> torch.nn.Module:
    return AutoModelForCausalLM.from_pretrained(
        model, dtype=dtype, attn_implementation="sdpa", local_files_only=True
    ).eval()


def _logits(module: torch.nn.Module, prompt: Sequence[int], answer: Sequence[int]) -> torch.Tensor:
    """Float32 logits that each token of the answer was chosen from: [tokens, vocabulary]."""
    sequence = torch.tensor([[*prompt, *answer[:-1]]])
    with torch.inference_mode():
        logits: torch.Tensor = module(sequence, use_cache=False, logits_to_keep=len(answer)).logits
    return logits[0].float()
