"""Plain transformers, and how a test drives the engine against it."""

from pathlib import Path

import torch
from transformers import AutoModelForCausalLM

from sluice_engine import messages
from sluice_engine.config import EngineOptions, engine_options
from sluice_engine.core.engine import EngineLoop
from sluice_engine.sampling_params import SamplingParams

CLOSE = 1e-4  # top two logits nearer than this may be swapped by the order of sums


class Oracle:
    """Greedy texts and logits of the reference."""

    def __init__(self, folder: Path) -> None:
        self._model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()

    @torch.inference_mode()
    def generate(self, prompt: list[int], max_tokens: int) -> list[int]:
        """transformers' own greedy `generate`, end-of-sequence token left out."""
        ids = torch.tensor([prompt])
        out = self._model.generate(
            ids, attention_mask=torch.ones_like(ids), max_new_tokens=max_tokens, do_sample=False, pad_token_id=1
        )
        tokens = out[0, len(prompt) :].tolist()
        return tokens[: tokens.index(1)] if 1 in tokens else tokens

    @torch.inference_mode()
    def gap(self, tokens: list[int]) -> float:
        """Distance of the top two logits after these tokens."""
        top = self._model(torch.tensor([tokens])).logits[0, -1].topk(2).values
        return float(top[0] - top[1])

    def expect(self, prompt: list[int], got: list[int], max_tokens: int) -> None:
        """Fail unless `got` is the greedy text; where the reference is near a tie, go on from the token taken."""
        want = self.generate(prompt, max_tokens)
        taken: list[int] = []
        while got != want:
            same = next(
                (i for i, (a, b) in enumerate(zip(got, want, strict=False)) if a != b), min(len(got), len(want))
            )
            taken = taken + got[:same]
            gap = self.gap(prompt + taken)
            if gap > CLOSE or same >= len(got):
                raise AssertionError(f"after {len(taken)} tokens: got {got[same:]}, want {want[same:]}, gap {gap}")
            taken.append(got[same])
            got = got[same + 1 :]
            want = self.generate(prompt + taken, max_tokens - len(taken)) if max_tokens > len(taken) else []


def options(folder: Path, **changes: object) -> EngineOptions:
    """Options for a test: one thread, float32, a pool of 4 MiB unless told otherwise."""
    values: dict[str, object] = {"model": str(folder), "served_name": "tiny", "threads": 1, "kv_size": 4 << 20}
    return engine_options(**(values | changes))


def submit(
    engine: EngineLoop, request_id: str, prompt: list[int], max_tokens: int, **params: object
) -> messages.Rejected | None:
    """Submit a request, greedy unless told otherwise."""
    values: dict[str, object] = {"max_tokens": max_tokens, "temperature": 0.0}
    sampling = SamplingParams(**(values | params))  # type: ignore[arg-type]
    return engine.submit(messages.Submit(request_id, tuple(prompt), sampling, 0.0))


def finish(engine: EngineLoop, limit: int = 5000) -> dict[str, list[int]]:
    """Step until nothing is left, the books checked after every step. Texts by request."""
    texts: dict[str, list[int]] = {}
    for report in run(engine, limit):
        for delta in report.deltas:
            texts.setdefault(delta.request_id, []).extend(delta.token_ids)
    return texts


def run(engine: EngineLoop, limit: int = 5000) -> list[messages.StepReport]:
    """The reports of all steps until nothing is left."""
    reports: list[messages.StepReport] = []
    for _ in range(limit):
        if not engine.has_work:
            return reports
        report = engine.step()
        engine.scheduler.check()
        if report is not None:
            reports.append(report)
    raise AssertionError(f"still at work after {limit} steps: {engine.state()}")
