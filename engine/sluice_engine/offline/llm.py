"""Offline use: a list of prompts in, a list of results out, by the serving engine in the caller's process.

from sluice_engine import LLM, SamplingParams

llm = LLM("/models/qwen3")
for result in llm.generate(["One prompt", "Another"], SamplingParams(max_tokens=64, temperature=0)):
    print(result.text)
"""

import itertools
import sys
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec

from sluice_engine import messages
from sluice_engine.config import engine_options
from sluice_engine.core.engine import EngineLoop
from sluice_engine.offline.beam_runner import BeamRunner
from sluice_engine.offline.beam_search import Beam, beam_search
from sluice_engine.offline.driver import step, submitted
from sluice_engine.offline.embeddings import encode_texts
from sluice_engine.offline.partial_sample import PartialSample
from sluice_engine.offline.progress import Progress
from sluice_engine.offline.results import Result
from sluice_engine.pulled import pull
from sluice_engine.sampling_params import MAX_LOGPROBS, SamplingParams
from sluice_engine.text import TextModel, TokenizerInvalid, load_text_model

Prompt = str | Sequence[int]
NO_TARGET = 1e9  # seconds; offline requests have no latency target, so it limits nothing


class LLM:
    """A loaded model: a folder, a GGUF file, a URI or a known name. Not thread-safe. Raises a
    `sluice_engine.errors.StartError` or `sluice_engine.sources.SourceError` when it cannot be loaded.

    `options` are fields of `EngineOptions` and `Limits`: dtype, device, max_model_length, kv_size, kv_memory_fraction,
    block_size, max_num_seqs, max_batched_tokens, threads and so on.
    """

    def __init__(self, model: str | Path, **options: Any) -> None:
        folder = pull(str(model), str(options.get("dtype", "auto")))
        defaults: dict[str, Any] = {
            "served_name": Path(model).name,
            "max_queue": sys.maxsize,
            "itl_target": NO_TARGET,
            "ttft_target": NO_TARGET,
        }
        parsed = engine_options(model=str(folder), **(defaults | options))
        most = parsed.limits.concurrency_max if "concurrency_max" in options else parsed.max_num_seqs
        limits = replace(parsed.limits, concurrency_min=most, concurrency_max=most)
        self._engine = EngineLoop(msgspec.structs.replace(parsed, limits=limits))
        self._names = itertools.count()
        self._text: TextModel | None = None
        self._text_error: TokenizerInvalid | None = None
        try:
            self._text = load_text_model(folder)
        except TokenizerInvalid as error:  # prompts of token ids need no tokenizer
            self._text_error = error

    def generate(
        self,
        prompts: Prompt | Sequence[Prompt],
        params: SamplingParams | Sequence[SamplingParams] | None = None,
        *,
        progress: bool | None = None,
    ) -> list[Result]:
        """Continue each prompt (text or token ids), with one `params` for all or one per prompt.

        Results are in the order of the prompts. A failed request has finish_reason "error"; the others continue.
        `progress` shows a bar on standard error; None: if standard error is a terminal. Raises ValueError for invalid
        input before any computation, and TokenizerInvalid if text needs a tokenizer that the model's folder lacks.
        """
        self._check_task("generate")
        encoded = self._encode(prompts)
        all_params = _one_per_prompt(params, len(encoded))
        for index, (tokens, each) in enumerate(zip(encoded, all_params, strict=True)):
            self._check(index, tokens, each)
        partials: dict[str, PartialSample] = {}
        groups = [[self._partial(each, partials) for _ in range(each.n)] for each in all_params]
        submitted_at = time.monotonic()
        submits = [
            self._submission(group, tokens, each, submitted_at)
            for group, tokens, each in zip(groups, encoded, all_params, strict=True)
        ]
        self._run(submits, partials, progress)
        return [
            Result(
                tokens,
                submitted_at,
                group[0].cached_tokens,
                tuple(partial.sample for partial in group),
                group[0].prompt_logprobs,
            )
            for tokens, group in zip(encoded, groups, strict=True)
        ]

    def beam_search(
        self, prompts: Prompt | Sequence[Prompt], beam_width: int, max_tokens: int, *, length_penalty: float = 1.0
    ) -> list[list[Beam]]:
        """The `beam_width` most likely continuations of each prompt, best first; equal to transformers' beam search
        with num_beams = beam_width.

        Beams share the blocks of their common prefix until one of them writes, compute nothing twice, and a dropped
        beam frees its blocks immediately. Raises as `generate`, and RuntimeError if a beam fails.
        """
        self._check_task("generate")
        encoded = self._encode(prompts)
        params = SamplingParams(max_tokens=max_tokens)
        if type(beam_width) is not int or beam_width < 1:
            raise ValueError(f"beam_width must be an integer of 1 or more, not {beam_width!r}")
        model = self._engine.model
        if (1 + len(model.eos_ids)) * beam_width > model.vocab_size:
            raise ValueError(f"beam_width {beam_width} is too much for a vocabulary of {model.vocab_size}")
        if (candidates := max(2, 1 + len(model.eos_ids)) * beam_width) > MAX_LOGPROBS:
            raise ValueError(
                f"beam_width {beam_width} is too much: it compares {candidates} tokens per beam, and at most "
                f"{MAX_LOGPROBS} have logprobs"
            )
        for index, tokens in enumerate(encoded):
            self._check(index, tokens, params)
            if len(tokens) + max_tokens > model.max_model_length:
                raise ValueError(
                    f"prompt {index} has {len(tokens)} tokens and max_tokens is {max_tokens}; the model's context is "
                    f"{model.max_model_length}"
                )
        with BeamRunner(self._engine, f"beams-{next(self._names)}", max_tokens) as runner:
            found = beam_search(encoded, beam_width, max_tokens, length_penalty, model.eos_ids, runner.expand)
        return [[self._with_text(beam) for beam in beams] for beams in found]

    def embed(self, texts: Prompt | Sequence[Prompt], *, progress: bool | None = None) -> list[tuple[float, ...]]:
        """Each text's embedding, pooled and normalised as the model's folder specifies. `progress` and errors as in
        `generate`; RuntimeError if the model fails on a text.
        """
        self._check_task("embed")
        return encode_texts(self._engine, [self._encoded(tokens) for tokens in self._encode(texts)], progress)

    def score(self, query: str, documents: Sequence[str], *, progress: bool | None = None) -> list[float]:
        """A cross-encoder's relevance score of each document for the query. Errors as in `embed`."""
        self._check_task("score")
        pairs = [self._tokenizer().encode_pair(query, document) for document in documents]
        submits = [self._encoded(tuple(tokens), tuple(types)) for tokens, types in pairs]
        return [row[0] for row in encode_texts(self._engine, submits, progress)]

    def _encoded(self, tokens: tuple[int, ...], types: tuple[int, ...] = ()) -> messages.Encode:
        return messages.Encode(f"offline-{next(self._names)}", tokens, time.monotonic(), types if any(types) else ())

    def _check_task(self, task: str) -> None:
        if self._engine.model.task != task:
            raise ValueError(f"this model does not {task}; it is loaded to {self._engine.model.task}")

    def _with_text(self, beam: Beam) -> Beam:
        if self._text is None:
            return beam
        decoder = self._text.detokenizer()
        return Beam(beam.token_ids, beam.score, beam.finish_reason, decoder.feed(beam.token_ids) + decoder.flush())

    def _run(
        self, submits: Sequence[messages.Submit], partials: dict[str, PartialSample], progress: bool | None
    ) -> None:
        """Submit, and step until every sample is complete. On any error no request remains in the engine."""
        engine, tokens = self._engine, 0
        waiting = set(partials)
        with submitted(engine, submits, waiting), Progress(len(partials), progress) as bar:
            while waiting:
                report = step(engine, f"{len(waiting)} answers are not complete")
                for delta in report.deltas:
                    partial = partials.get(delta.request_id)
                    if partial is None:  # from an interrupted call
                        continue
                    tokens += len(delta.token_ids)
                    if partial.take(delta, report.ended_at):
                        engine.cancel(messages.Cancel(partial.name, "stop"))
                    if partial.done:
                        waiting.discard(partial.name)
                bar.update(len(partials) - len(waiting), tokens)

    def _partial(self, params: SamplingParams, partials: dict[str, PartialSample]) -> PartialSample:
        partial = PartialSample(f"offline-{next(self._names)}", params, self._text)
        partials[partial.name] = partial
        return partial

    def _submission(
        self, group: Sequence[PartialSample], tokens: tuple[int, ...], params: SamplingParams, now: float
    ) -> messages.Submit:
        room = self._engine.model.max_model_length - len(tokens)
        samples = tuple((partial.name, params.sample_seed(sample)) for sample, partial in enumerate(group))
        first = replace(params.within(room), seed=samples[0][1])
        return messages.Submit(samples[0][0], tokens, first, now, samples=samples[1:])

    def _encode(self, prompts: Prompt | Sequence[Prompt]) -> list[tuple[int, ...]]:
        listed: Sequence[Prompt] = [prompts] if isinstance(prompts, str) else prompts  # type: ignore[assignment]
        encoded: list[tuple[int, ...]] = []
        for index, prompt in enumerate(listed):
            if isinstance(prompt, str):
                encoded.append(tuple(self._tokenizer().encode_prompt(prompt)))
            elif isinstance(prompt, list | tuple) and all(type(token) is int for token in prompt):
                encoded.append(tuple(prompt))
            else:
                raise ValueError(f"prompt {index} must be a string or a list of token ids, not {type(prompt).__name__}")
        return encoded

    def _tokenizer(self) -> TextModel:
        if self._text is None:
            raise self._text_error or TokenizerInvalid("the model has no tokenizer")
        return self._text

    def _check(self, index: int, tokens: tuple[int, ...], params: SamplingParams) -> None:
        """Raises ValueError if this prompt with these params can never run."""
        context, width = self._engine.model.max_model_length, self._engine.model.vocab_size
        if not tokens:
            raise ValueError(f"prompt {index} has no tokens")
        if len(tokens) >= context:
            raise ValueError(
                f"prompt {index} has {len(tokens)} tokens; the model's context is {context}, and one is to be generated"
            )
        if not 0 <= min(tokens) <= max(tokens) < width:
            raise ValueError(f"prompt {index} has a token id outside the vocabulary of {width}")
        if any(token >= width for token in params.logit_bias):
            raise ValueError(f"logit_bias for prompt {index} has a token id outside the vocabulary of {width}")
        if params.stops:
            self._tokenizer()


def _one_per_prompt(params: SamplingParams | Sequence[SamplingParams] | None, prompts: int) -> list[SamplingParams]:
    if params is None or isinstance(params, SamplingParams):
        return [params or SamplingParams()] * prompts
    if len(params) != prompts:
        raise ValueError(f"{len(params)} SamplingParams for {prompts} prompts: give one for all, or one for each")
    return list(params)
