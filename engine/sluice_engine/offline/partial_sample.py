"""The incremental result of one offline sample: tokens, logprobs and times per step, and text if needed.

Without stop strings the text is not needed before the end, so it is decoded once, at the end.
"""

from sluice_engine import messages
from sluice_engine.offline.results import Sample
from sluice_engine.request import TokenLogprob
from sluice_engine.sampling_params import SamplingParams
from sluice_engine.text import Choice, TextModel


class PartialSample:
    """The sample with request id `name`. `text` may be None without stop strings; the text is then empty."""

    def __init__(self, name: str, params: SamplingParams, text: TextModel | None) -> None:
        self.name = name
        self.cached_tokens = 0
        self.done = False
        self._text = text
        self._choice: Choice | None = None
        if params.stops and text is not None:
            self._choice = Choice(0, name, text, params.stops, params.min_tokens, with_logprobs=False)
        self._shown: list[str] = []
        self._tokens: list[int] = []
        self._logprobs: list[TokenLogprob] | None = [] if params.logprobs is not None else None
        self._prompt_logprobs: list[TokenLogprob] | None = [] if params.prompt_logprobs is not None else None
        self._first_at: float | None = None
        self._last_at: float | None = None
        self._finish = ""
        self._error: str | None = None

    def take(self, delta: messages.Delta, at: float) -> bool:
        """Process the tokens of a step that ended `at`. Returns True if a stop string has just ended the sample: the
        caller must cancel it in the engine, which does not see the text.
        """
        if self.done:
            return False
        if self._prompt_logprobs is not None:
            self._prompt_logprobs += delta.prompt_logprobs
        taken = len(delta.token_ids)
        if self._choice is not None:
            before = self._choice.tokens
            self._shown.append(self._choice.take(delta).text)
            taken = self._choice.tokens - before
        if taken:
            self._tokens += delta.token_ids[:taken]
            self._last_at = at
            if self._first_at is None:
                self._first_at = at
                self.cached_tokens = delta.cached_tokens
            if self._logprobs is not None:
                self._logprobs += delta.logprobs[:taken]
        if self._choice is not None and self._choice.stopped_by_text:
            self.end("stop")
            return delta.finish is None
        if delta.finish is not None:
            self.end(delta.finish, delta.error)
        return False

    def end(self, finish: str, error: str | None = None) -> None:
        """Mark the sample complete."""
        self.done, self._finish, self._error = True, finish, error

    @property
    def prompt_logprobs(self) -> tuple[TokenLogprob | None, ...] | None:
        """The logprobs of the prompt's tokens, None for the first one; None if they were not requested."""
        return None if self._prompt_logprobs is None else (None, *self._prompt_logprobs)

    @property
    def sample(self) -> Sample:
        """The complete sample."""
        return Sample(
            text=self._whole_text(),
            token_ids=tuple(self._tokens),
            finish_reason=self._finish,
            logprobs=None if self._logprobs is None else tuple(self._logprobs),
            first_token_at=self._first_at,
            last_token_at=self._last_at,
            error=self._error,
        )

    def _whole_text(self) -> str:
        if self._choice is not None:
            return "".join(self._shown)
        if self._text is None:
            return ""
        decoder = self._text.detokenizer()
        return decoder.feed(self._tokens) + decoder.flush()
