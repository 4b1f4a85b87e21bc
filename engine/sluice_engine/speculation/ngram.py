"""Prompt lookup decoding (A. Saxena, 2023): draft the tokens that followed the last few tokens the last time.

Summaries, edits, code and quotations repeat themselves and their prompt. There is no draft model: a draft costs one
dictionary lookup, and a rejected one only its share of a step.
"""

from collections.abc import Sequence

NGRAM = 3  # tokens that must match: with two, most drafts are rejected in random text
_TOKEN_BITS = 21  # wider than any vocabulary
_MASK = (1 << NGRAM * _TOKEN_BITS) - 1


class PromptLookup:
    """The last position of each run of NGRAM tokens of one request. One insertion per token, made at the next lookup."""

    __slots__ = ("_after", "_indexed", "_key")

    def __init__(self) -> None:
        self._after: dict[int, int] = {}  # packed n-gram → place of the token after its latest occurrence
        self._indexed = 0  # leading tokens of `known` that are in `_key` or `_after`
        self._key = 0  # the last NGRAM of them

    def draft(self, known: Sequence[int], most: int) -> tuple[int, ...]:
        """At most `most` tokens that may follow `known`, which may only grow; () where its last NGRAM tokens occurred never
        before.

        A repetition shorter than `most` is repeated.
        """
        key = self._catch_up(known)
        place = self._after.get(key) if len(known) >= NGRAM else None
        if place is None or most <= 0:
            return ()
        found = tuple(known[place : place + most])
        while len(found) < most:  # the repetition overlaps the end of `known`: repeat it
            found += found[: most - len(found)]
        return found

    def _catch_up(self, known: Sequence[int]) -> int:
        """Index all n-grams but the last one, and return that one as the key."""
        after, key = self._after, self._key
        for place in range(self._indexed, len(known)):
            if place >= NGRAM:
                after[key] = place
            key = (key << _TOKEN_BITS | known[place]) & _MASK
        self._indexed, self._key = len(known), key
        return key
