"""Runs a plan on the model: tensors in, one token per sampling row out. One request's failure stays its own."""

from collections.abc import Container, Sequence
from dataclasses import dataclass, field
from typing import Final

import torch

from sluice_engine.isolate import isolate
from sluice_engine.model.kv import KVCache
from sluice_engine.model.load import LoadedModel
from sluice_engine.prepare import Preparer
from sluice_engine.request import TokenLogprob
from sluice_engine.sampling import NOT_A_NUMBER, Sampler
from sluice_engine.scheduler import Plan, Row


@dataclass(slots=True)
class StepResult:
    """Tokens by the order of the plan's sampling rows; requests that failed, with a sentence each; logprobs of those
    that asked for them."""

    sampled: list[int]
    errors: dict[str, str] = field(default_factory=dict)
    logprobs: dict[str, TokenLogprob] = field(default_factory=dict)
    vectors: dict[str, bytes] = field(default_factory=dict)  # of whole texts, float32 in little-endian


NOTHING: Final = StepResult([])  # of no step


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
        self._sampler = Sampler(max_num_seqs, model.vocab_size, model.device)

    def run(self, plan: Plan) -> StepResult:
        """Compute the plan. If the batch raises, its rows are run one by one, and only those that raise fail; if it
        runs out of memory, its largest request fails and the rest is tried again."""
        errors: dict[str, str] = {}
        logprobs: dict[str, TokenLogprob] = {}
        for join in plan.joins:
            try:
                self._sampler.join(join.slot, join.sampling, join.known, join.prompt_length)
            except Exception as error:  # noqa: BLE001 - a request can fail, the loop cannot
                errors[join.request_id] = f"its sampling could not be set up: {error}"
        self._preparer.install(plan)
        if plan.copies:
            self.cache.copy(plan.copies)
        rows = _without(plan.rows, errors) if errors else plan.rows
        tokens = isolate(rows, lambda some: self._forward(some, logprobs), errors)
        for request_id, token in tokens.items():
            if token == NOT_A_NUMBER:
                errors[request_id] = "the model's output for this request is not a number"
        sampled = [tokens.get(name, NOT_A_NUMBER) for row in plan.rows for name in row.choosers]
        return StepResult(sampled, errors, logprobs)

    @torch.inference_mode()
    def _forward(self, rows: Sequence[Row], logprobs: dict[str, TokenLogprob]) -> dict[str, int]:
        """A token for every row and its twins. A chunk that does not sample has one as well, only to see that it is a
        number: NaN anywhere in a chunk reaches its last token, and must be found before others can hit the chunk's
        blocks. Logprobs that were asked for go into `logprobs`."""
        prepared = self._preparer.batch(rows)
        batch, choosers = prepared.batch, prepared.choosers
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
        sampled = self._sampler.sample(output.logits[0], prepared.slots, prepared.positions, prepared.samples)
        for row, found in sampled.logprobs.items():
            logprobs[choosers[row]] = found
        return dict(zip(choosers, sampled.tokens, strict=True))

    def scrub(self, blocks: list[int]) -> None:
        """Zero blocks that a failed request may have filled with NaN."""
        if blocks:
            self.cache.scrub(blocks)


def _without(rows: Sequence[Row], failed: Container[str]) -> list[Row]:
    """The rows of requests that did not fail, without twins that did."""
    return [
        row._replace(twins=tuple(twin for twin in row.twins if twin.request_id not in failed)) if row.twins else row
        for row in rows
        if row.request_id not in failed
    ]
