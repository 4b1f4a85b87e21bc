"""Prompt lookup: guess that what followed these tokens the last time follows them again.

Summaries, edits, code and answers that quote repeat themselves and their prompt; the last few tokens, looked up in
what the request already knows, then say what comes (prompt lookup decoding, A. Saxena, 2023). No second model: a guess
costs one dictionary look-up, and a wrong one only the draft's share of a step.
"""

from collections.abc import Sequence

NGRAM = 3  # tokens that must agree: with two, drafts are more often wrong than right in random text
_TOKEN_BITS = 21  # wider than any vocabulary
_MASK = (1 << NGRAM * _TOKEN_BITS) - 1


class PromptLookup:
    """Where each run of NGRAM tokens of one request was seen last. One insertion per token, made when it is needed."""

    __slots__ = ("_after", "_indexed", "_key")

    def __init__(self) -> None:
        self._after: dict[int, int] = {}  # packed n-gram → place of the token after its latest occurrence
        self._indexed = 0  # leading tokens of `known` that are in `_key` or `_after`
        self._key = 0  # the last NGRAM of them

    def draft(self, known: Sequence[int], most: int) -> tuple[int, ...]:
        """At most `most` tokens that may follow `known`, which only ever grows; () where nothing like it was seen.

        A repetition shorter than `most` is taken to go round again.
        """
        key = self._catch_up(known)
        place = self._after.get(key) if len(known) >= NGRAM else None
        if place is None or most <= 0:
            return ()
        found = tuple(known[place : place + most])
        while len(found) < most:  # it runs into the end of what is known, which it continues
            found += found[: most - len(found)]
        return found

    def _catch_up(self, known: Sequence[int]) -> int:
        """Index all n-grams but the last one, whose continuation is the question; gives the last one."""
        after, key = self._after, self._key
        for place in range(self._indexed, len(known)):
            if place >= NGRAM:
                after[key] = place
            key = (key << _TOKEN_BITS | known[place]) & _MASK
        self._indexed, self._key = len(known), key
        return key
