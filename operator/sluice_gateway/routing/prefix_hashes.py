"""Chained hashes of a conversation's text, which stand for its prefixes as an engine's block hashes do for its tokens.

The text is hashed as bytes, without a tokenizer: engines share cached blocks only where the tokens are equal, and equal
text before a point gives equal tokens up to about that point. A turn of a chat appends to the text of the turn before.
"""

import hashlib
from typing import Final

STEP_BYTES: Final = 256  # about 64 tokens, four blocks of an engine
MAX_STEPS: Final = 4096  # 1 MiB of text; a longer prompt is known by its first MiB


def prefix_hashes(text: bytes, *, tenant: str, model: str) -> tuple[int, ...]:
    """One hash of 64 bits per full step of the text. O(length).

    The tenant and the model are part of every hash: caches are not shared among tenants.
    """
    chain = hashlib.blake2b(repr((tenant, model)).encode(), digest_size=8)
    view, found = memoryview(text), []
    for end in range(STEP_BYTES, min(len(text), MAX_STEPS * STEP_BYTES) + 1, STEP_BYTES):
        chain.update(view[end - STEP_BYTES : end])
        found.append(int.from_bytes(chain.digest()))
    return tuple(found)
