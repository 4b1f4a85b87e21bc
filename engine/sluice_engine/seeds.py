"""Seeds for the samples of one request. Standard library only, because both processes and the offline API use it."""

import hashlib


def sample_seed(seed: int | None, index: int) -> int | None:
    """The seed of the sample with this index. Sample 0 has the request's own seed, and each further seed is a hash of
    (seed, index), so a larger n does not change the earlier samples. None stays None: the engine draws a random seed
    for each sample.
    """
    if seed is None or index == 0:
        return seed
    digest = hashlib.sha256(f"{seed}/{index}".encode()).digest()
    return int.from_bytes(digest[:8], "little", signed=True)
