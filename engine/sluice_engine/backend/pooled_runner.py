"""Executes a plan of pooling requests: tokens in, one vector per text out."""

from collections.abc import Callable, Sequence
from functools import partial

import numpy as np
import torch

from sluice_engine.backend.failure_isolation import check_device, isolate
from sluice_engine.backend.runner import StepResult
from sluice_engine.model.pooling.packed_batch import by_length, pack_batch
from sluice_engine.model.pooling.pooled_model import PooledModel
from sluice_engine.scheduler import Plan, Row


class PooledRunner:
    """A runner without a KV cache. Counts real tokens and computed rows to measure padding."""

    def __init__(self, model: PooledModel, vocab_size: int, device: torch.device) -> None:
        self._model = model
        self._vocab_size = vocab_size
        self._device = device
        self.tokens = 0  # without padding
        self.computed_rows = 0  # of attention, padding included; the other layers have no padding

    def prepare(self, plan: Plan) -> Callable[[], StepResult]:
        """Returns a callable that computes the plan."""
        return partial(self.run, plan)

    def run(self, plan: Plan) -> StepResult:
        """Compute the plan. If the batch raises, only the texts that raise alone fail. Raises RuntimeError if the
        accelerator is lost.
        """
        types = {join.request_id: join.token_types for join in plan.joins if join.token_types}
        errors: dict[str, str] = {}
        vectors = isolate(plan.rows, lambda rows: self._forward(rows, types), errors)
        for request_id, vector in list(vectors.items()):
            if not np.isfinite(np.frombuffer(vector, dtype="<f4")).all():
                errors[request_id] = "the model's output for this request is not a number"
                del vectors[request_id]
        if not vectors:
            check_device(self._device)
        return StepResult([], errors, vectors=vectors)

    def _forward(self, rows: Sequence[Row], types: dict[str, tuple[int, ...]]) -> dict[str, bytes]:
        ordered = [rows[index] for index in by_length([len(row.tokens) for row in rows])]
        # On the host: the device would have to wait.
        if any(min(row.tokens) < 0 or max(row.tokens) >= self._vocab_size for row in ordered):
            raise ValueError(f"a token id lies outside the vocabulary of {self._vocab_size}")
        token_types = [types.get(row.request_id, ()) for row in ordered]
        batch = pack_batch([row.tokens for row in ordered], token_types, self._device)
        vectors = self._model.run(batch).cpu().numpy().astype("<f4")
        self.tokens += int(batch.input_ids.shape[1])
        self.computed_rows += batch.computed_rows
        return {row.request_id: vector.tobytes() for row, vector in zip(ordered, vectors, strict=True)}
