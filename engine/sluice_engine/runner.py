"""Runs a plan on the model: tensors in, one token per sampling row out. One request's failure stays its own."""

import logging
from collections.abc import Sequence
from dataclasses import dataclass, field

import torch

from sluice_engine.model.kv import KVCache
from sluice_engine.model.load import LoadedModel
from sluice_engine.prepare import Preparer
from sluice_engine.request import Sampling
from sluice_engine.sampling import NOT_A_NUMBER, sample
from sluice_engine.scheduler import Plan, Row

_log = logging.getLogger(__name__)


@dataclass(slots=True)
class StepResult:
    """Tokens by the order of the plan's sampling rows; requests that failed, with a sentence each."""

    sampled: list[int]
    errors: dict[str, str] = field(default_factory=dict)


class Runner:
    """The model with its KV cache. Not thread-safe: one step at a time."""

    def __init__(self, model: LoadedModel, *, num_blocks: int, block_size: int, max_num_seqs: int) -> None:
        self.model = model
        self.cache = KVCache(model.kv_shape, num_blocks, block_size, model.device)
        self._preparer = Preparer(
            max_num_seqs=max_num_seqs,
            max_model_length=model.max_model_length,
            block_size=block_size,
            null_block=self.cache.null_block,
            device=model.device,
        )
        self._sampling = [Sampling()] * max_num_seqs

    def run(self, plan: Plan) -> StepResult:
        """Compute the plan. If the batch raises, its rows are run one by one, and only those that raise fail."""
        for join in plan.joins:
            self._sampling[join.slot] = join.sampling
        self._preparer.install(plan)
        errors: dict[str, str] = {}
        try:
            tokens = self._forward(plan.rows)
        except Exception:  # noqa: BLE001 - a request can fail, the loop cannot
            _log.exception("a step of %d rows failed; running them one by one", len(plan.rows))
            tokens = {}
            for row in plan.rows:
                try:
                    tokens |= self._forward([row])
                except Exception as error:  # noqa: BLE001 - a request can fail, the loop cannot
                    errors[row.request_id] = f"the model failed on this request: {error}"
        for request_id, token in tokens.items():
            if token == NOT_A_NUMBER:
                errors[request_id] = "the model's output for this request is not a number"
        sampled = [tokens.get(row.request_id, NOT_A_NUMBER) for row in plan.rows if row.samples]
        return StepResult(sampled, errors)

    @torch.inference_mode()
    def _forward(self, rows: Sequence[Row]) -> dict[str, int]:
        """A token for every row. A chunk that does not sample has one as well, only to see that it is a number: NaN
        anywhere in a chunk reaches its last token, and must be found before others can hit the chunk's blocks."""
        batch, ordered = self._preparer.batch(rows)
        if int(batch.input_ids.max()) >= self.model.vocab_size or int(batch.input_ids.min()) < 0:
            raise ValueError(f"a token id lies outside the vocabulary of {self.model.vocab_size}")
        output = self.model.module(
            input_ids=batch.input_ids,
            position_ids=batch.position_ids,
            use_cache=False,
            logits_to_keep=batch.logits_index,
            sluice_batch=batch,
            sluice_cache=self.cache,
        )
        tokens = sample(
            output.logits[0],
            [self._sampling[row.slot] if row.samples else Sampling() for row in ordered],
            [row.start + len(row.tokens) for row in ordered],
        )
        return {row.request_id: token for row, token in zip(ordered, tokens, strict=True)}

    def scrub(self, blocks: list[int]) -> None:
        """Zero blocks that a failed request may have filled with NaN."""
        if blocks:
            self.cache.scrub(blocks)
