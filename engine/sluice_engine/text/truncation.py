"""Encodes only the first tokens of a text or of a pair of texts, and keeps the special tokens, as transformers truncates."""

from collections.abc import Sequence
from typing import Any


class NoRoom(Exception):
    """So few tokens leave no room for the texts. `least` is enough for one token of each."""

    def __init__(self, least: int) -> None:
        super().__init__(f"at least {least} tokens are needed")
        self.least = least


def encode_first(tokenizer: Any, texts: Sequence[str], most: int) -> tuple[list[int], list[int]]:
    """The token ids and token type ids of one or two texts, at most `most` of them with the special ones. Raises NoRoom.

    The tokens are chosen here: `Encoding.truncate` of `tokenizers` keeps everything that it cuts off, and a pair of two
    such encodings has the product of both.
    """
    special = tokenizer.num_special_tokens_to_add(len(texts) > 1)
    if most < special + len(texts):
        raise NoRoom(special + len(texts))
    (encoding,) = tokenizer.encode_batch_fast([texts[0] if len(texts) == 1 else tuple(texts)])
    owners = encoding.sequence_ids  # the place of a token's text; None for a special token
    left = shares([owners.count(place) for place in range(len(texts))], most - special)
    ids: list[int] = []
    types: list[int] = []
    for token, kind, owner in zip(encoding.ids, encoding.type_ids, owners, strict=True):
        if owner is not None:
            if left[owner] == 0:
                continue
            left[owner] -= 1
        ids.append(token)
        types.append(kind)
    return ids, types


def shares(lengths: Sequence[int], room: int) -> list[int]:
    """What each of one or two lengths keeps of the room: of two, the longer one is shortened until both are equal
    (`longest_first` of transformers)."""
    if sum(lengths) <= room:
        return list(lengths)
    if len(lengths) == 1:
        return [room]
    shorter, longer = sorted((0, 1), key=lambda place: lengths[place])
    kept = [0, 0]
    kept[shorter] = min(lengths[shorter], room // 2)
    kept[longer] = room - kept[shorter]
    return kept
