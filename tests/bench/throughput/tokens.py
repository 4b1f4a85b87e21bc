"""Whether tokens are those of plain transformers: each one judged after the very tokens that came before it.

The oracle reads a whole sequence at once, so that its verdict on one token does not depend on an earlier difference
(the check goes on from what is there). In float32 a token may differ from the oracle's only where the two logits lie
within 1e-4. In bfloat16 no two correct engines agree on near ties: there a token is right if its logit in float32 is
within twice the largest error that plain transformers in bfloat16 makes against float32 on these same sequences, for
that is how far two candidates can be moved towards each other by rounding alone.
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
    exact: int  # are the oracle's own choice
    worst: float  # most that the oracle's choice is ahead of the token that was chosen, in logits
    allowed: float

    @property
    def holds(self) -> bool:
        """Whether every token is right."""
        return self.worst <= self.allowed

    @property
    def share(self) -> float:
        """Of tokens that are exactly the oracle's."""
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
