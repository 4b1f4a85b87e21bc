"""The seed of each of several samples of one request. Standard library only: both processes and offline use need it."""

import hashlib


def sample_seed(seed: int | None, index: int) -> int | None:
    """The seed of sample `index` of a request with `seed`: the first sample has the request's own, so that asking for
    more samples changes none of the earlier ones. None stays None: the engine draws one for each."""
    if seed is None or index == 0:
        return seed
    digest = hashlib.sha256(f"{seed}/{index}".encode()).digest()
    return int.from_bytes(digest[:8], "little", signed=True)
