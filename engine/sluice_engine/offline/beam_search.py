"""Beam search over a function that returns the most likely next tokens; it uses no engine and no tensor.

The rules are those of transformers (generation/utils.py, `_beam_search` with early_stopping=False), so that results are
equal. Of all continuations of the running beams, the max(2, 1 + number of EOS ids) · width best are considered. Those
among the width best that end become results, ranked by score per length. The width best that do not end continue.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Literal

Expansion = tuple[tuple[int, float], ...]  # (token, logprob), most likely first


@dataclass(frozen=True, slots=True)
class Branch:
    """A running beam: all its tokens, and the index of the preceding round's beam that it continues; None in the first
    round.
    """

    tokens: tuple[int, ...]
    origin: int | None = None


Expand = Callable[[Sequence[Branch], int], list[Expansion]]


@dataclass(frozen=True, slots=True)
class Beam:
    """One result. `score` is the sum of its logprobs over its length to the power of the length penalty. A final
    end-of-sequence token counts in both and is not in `token_ids`.
    """

    token_ids: tuple[int, ...]
    score: float
    finish_reason: Literal["stop", "length"]
    text: str = ""


_Entry = tuple[float, tuple[int, ...], int | None]


@dataclass(slots=True)
class _Search:
    """The search for one prompt. `running` holds (sum of logprobs, output tokens, origin), best first."""

    prompt: tuple[int, ...]
    running: list[_Entry] = field(default_factory=lambda: [(0.0, (), None)])
    results: list[Beam] = field(default_factory=list)
    over: bool = False


def beam_search(
    prompts: Sequence[tuple[int, ...]],
    width: int,
    max_tokens: int,
    length_penalty: float,
    eos_ids: frozenset[int],
    expand: Expand,
) -> list[list[Beam]]:
    """`width` results per prompt, best first. `expand(branches, k)` returns the k most likely next tokens of each beam.
    Of the preceding round's beams, only those that a beam names as its origin are still needed.
    """
    searches = [_Search(prompt) for prompt in prompts]
    kept = max(2, 1 + len(eos_ids)) * width
    for length in range(1, max_tokens + 1):
        running = [search for search in searches if not search.over]
        if not running:
            break
        branches = [
            Branch(search.prompt + tokens, origin) for search in running for _, tokens, origin in search.running
        ]
        expansions = expand(branches, kept)
        first = 0
        for search in running:
            count = len(search.running)
            continuations = _continuations(search, expansions[first : first + count], first)[:kept]
            first += count
            last = length == max_tokens
            _collect(search, continuations[:width], eos_ids, length**length_penalty, last)
            search.running = [entry for entry in continuations if entry[1][-1] not in eos_ids][:width]
            search.over = last or _finished(search, width, length**length_penalty)
    return [search.results for search in searches]


def _continuations(search: _Search, expansions: Sequence[Expansion], first: int) -> list[_Entry]:
    """Every continuation, best first. The search's beams of this round are numbered from `first`."""
    continuations = [
        (score + logprob, (*tokens, token), origin)
        for origin, ((score, tokens, _), expansion) in enumerate(zip(search.running, expansions, strict=True), first)
        for token, logprob in expansion
    ]
    return sorted(continuations, key=lambda entry: -entry[0])


def _collect(
    search: _Search,
    best: Sequence[_Entry],
    eos_ids: frozenset[int],
    divisor: float,
    last: bool,
) -> None:
    """Add the ended ones of the `width` best to the results, at the last length all of them, and keep the best `width`
    results.
    """
    for score, tokens, _ in best:
        if tokens[-1] in eos_ids:
            search.results.append(Beam(tokens[:-1], score / divisor, "stop"))
        elif last:
            search.results.append(Beam(tokens, score / divisor, "length"))
    search.results.sort(key=lambda beam: -beam.score)
    del search.results[len(best) :]


def _finished(search: _Search, width: int, divisor: float) -> bool:
    """True if no running beam is expected to beat the worst result, judged at its current length."""
    if not search.running:
        return True
    return len(search.results) == width and search.running[0][0] / divisor <= search.results[-1].score
