"""What a response shows of its prompt: the text with `echo`, and the logprobs of the prompt's tokens as they arrive.

`echo` with `logprobs` is OpenAI's way to score a text, `prompt_logprobs` vLLM's. Both need the whole prompt computed.
"""

from collections.abc import Sequence
from typing import Any, Final

from sluice_engine.request import TokenLogprob
from sluice_engine.sampling_params import SamplingParams
from sluice_engine.server.api.generation.logprobs import Vocabulary, token_text
from sluice_engine.server.api.generation.prompt import Encoded
from sluice_engine.server.errors import BadRequest
from sluice_engine.text import Entry, Piece, TextModel

MAX_VALUES: Final = 1 << 18  # logprobs of prompts in one response, which holds some 40 bytes of JSON for each
INLINE_VALUES: Final = 2048  # more are formatted in a thread


def prompt_values(prompts: Sequence[Encoded], params: SamplingParams) -> int:
    """Logprobs of prompts in the response. Raises BadRequest if there are too many."""
    if params.prompt_logprobs is None:
        return 0
    tokens = sum(len(prompt.tokens) for prompt in prompts)
    values = tokens * params.n * (1 + params.prompt_logprobs)
    if values > MAX_VALUES:
        raise BadRequest(
            f"{tokens} prompt tokens with {1 + params.prompt_logprobs} logprobs each for {params.n} choices are more than "
            f"{MAX_VALUES} values, the most in one response; send less text at once or ask for fewer top tokens.",
            param="prompt",
            code="invalid_value",
        )
    return values


class PromptEcho:
    """The part of one prompt that is shown. `top`: top tokens beside each of its tokens; None: without logprobs."""

    def __init__(self, prompt: Encoded, text: TextModel, top: int | None) -> None:
        self.text = prompt.echo
        self.scores: list[TokenLogprob] = []  # as they arrived
        self._tokens = () if top is None else prompt.tokens
        self._top = top
        self._before = prompt.before_echo
        self._decoder = text.detokenizer(special_tokens=True)
        self._place = self._decoded = self._shown = 0

    def opening(self) -> Piece:
        """What is known before the prompt is computed: all of its text, or its first token, which has no logprob."""
        return self._next((None,)) if self._tokens else Piece(self.text)

    def take(self, scores: Sequence[TokenLogprob]) -> Piece:
        """The next tokens of the prompt with their logprobs."""
        self.scores += scores
        return self._next(scores) if self._tokens else Piece()

    def _next(self, scores: Sequence[TokenLogprob | None]) -> Piece:
        entries: list[Entry] = []
        for score, token in zip(scores, self._tokens[self._place :], strict=False):
            start = self._characters
            self._decoded += len(self._decoder.feed((token,)))
            given = None if score is None else score._replace(top=score.top[: self._top])
            entries.append(Entry(token, start, self._characters, given))
        self._place += len(entries)
        end = len(self.text) if self._place == len(self._tokens) else self._characters
        piece = Piece(self.text[self._shown : end], entries)
        self._shown = end
        return piece

    @property
    def _characters(self) -> int:
        """Characters of the echoed text that are decoded; tokens before it, such as a BOS token, have none of them."""
        return min(max(0, self._decoded - self._before), len(self.text))


def prompt_logprobs(
    scores: Sequence[TokenLogprob], tokens: Sequence[int], top: int, vocabulary: Vocabulary
) -> list[Any]:
    """The `prompt_logprobs` of a choice as vLLM writes them: null, then per token an object by token id."""
    found: list[Any] = [None]
    for token, score in zip(tokens[1:], scores, strict=True):
        shown = {each: (value, place + 1) for place, (each, value) in enumerate(score.top[:top])}
        shown.setdefault(token, (score.logprob, score.rank))
        found.append(
            {
                str(each): {"logprob": value, "rank": rank, "decoded_token": token_text(vocabulary.token_bytes(each))}
                for each, (value, rank) in shown.items()
            }
        )
    return found
