"""The incremental output of one sample: tokens in, text and logprobs to emit out."""

from dataclasses import dataclass, field

from sluice_engine import messages
from sluice_engine.request import TokenLogprob
from sluice_engine.text.logprob_buffer import Entry, LogprobBuffer
from sluice_engine.text.stop_strings import StopScanner
from sluice_engine.text.tokenizer import TextModel


@dataclass(slots=True)
class Piece:
    """Text and logprobs to emit now."""

    text: str = ""
    logprobs: list[Entry] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Display:
    """What of an output is shown besides its text: special tokens, and the stop string that ended it."""

    special_tokens: bool = False
    stop_string: bool = False


class Choice:
    """The sample `index` of a request; `id` is its request id in the engine. `finish` is set when it is complete."""

    def __init__(
        self,
        index: int,
        request_id: str,
        text: TextModel,
        stop: tuple[str, ...],
        min_tokens: int,
        with_logprobs: bool,
        display: Display = Display(),
    ) -> None:
        self.index = index
        self.id = request_id
        self.tokens = 0
        self.finish: str | None = None
        self.stopped_by_text = False
        self.score = 0.0  # sum of the tokens' logprobs
        self._decoder = text.detokenizer(special_tokens=display.special_tokens)
        self._scanner = StopScanner(stop, show=display.stop_string)
        self._min_tokens = min_tokens
        self._logprobs = LogprobBuffer() if with_logprobs else None
        self._emitted = 0

    @property
    def stop_string(self) -> str | None:
        """The stop string that ended the sample; None if something else did, or nothing yet."""
        return self._scanner.matched

    @property
    def mean_logprob(self) -> float:
        """Mean logprob per token, the ranking key of best_of."""
        return self.score / self.tokens if self.tokens else 0.0

    def take(self, delta: messages.Delta) -> Piece:
        """Process a delta and return the text to emit. Sets `finish` at a stop string or when the engine finished the
        sample. Tokens after a stop string are ignored, so the output does not depend on how tokens are grouped into
        deltas.
        """
        if self.finish is not None:
            return Piece()
        text = ""
        for place, token in enumerate(delta.token_ids):
            text += self._take_token(token, delta.logprobs[place] if delta.logprobs else None)
            if self._scanner.stopped:
                break
        if delta.finish is not None and not self._scanner.stopped:
            text += self._filter_stops(self._tail(delta.finish))
        if self._scanner.stopped:
            self.finish, self.stopped_by_text = "stop", True
        elif delta.finish is not None:
            text += self._scanner.flush()
            self.finish = delta.finish
        self._emitted += len(text)
        return Piece(text, self._entries())

    def _take_token(self, token: int, logprob: TokenLogprob | None) -> str:
        """Process one token; returns the text to emit for it."""
        self.tokens += 1
        decoded = self._decoder.feed((token,))
        if logprob is not None:
            self.score += logprob.logprob
            if self._logprobs is not None:
                self._logprobs.add(token, len(decoded), logprob)
        return self._filter_stops(decoded)

    def _tail(self, finish: str) -> str:
        """The decoder's remaining text. A character that the length limit has cut is dropped."""
        tail = self._decoder.flush()
        return tail.rstrip("\ufffd") if finish == "length" else tail

    def _filter_stops(self, decoded: str) -> str:
        """The text after stop-string filtering; stop strings are ignored before min_tokens."""
        early = self._min_tokens > 0 and self.tokens <= self._min_tokens
        return decoded if early else self._scanner.feed(decoded)

    def _entries(self) -> list[Entry]:
        if self._logprobs is None:
            return []
        taken = self._logprobs.take(self._emitted)
        return taken + self._logprobs.last(self._emitted, self.stopped_by_text) if self.finish is not None else taken
