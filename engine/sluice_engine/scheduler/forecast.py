"""The most KV memory that a set of running requests will hold at any time to come (Past-Future, ASPLOS'25, eq. 3).

Each request grows by a token per step and gives everything back at its end, so the peak stands at the end of one of
them. With requests in order of what they still write, longest first, r_i tokens to go and c_i tokens held,

    peak = max over i of  Σ_{j ≤ i} c_j  +  i · r_i
"""

from collections.abc import Iterable


def predicted_peak(requests: Iterable[tuple[int, int]], block_size: int) -> float:
    """Blocks at the peak, for (tokens still to write, tokens held once its prompt is computed) of each request.

    On the mean half of each request's last block is empty at any time.
    """
    held, peak = 0, 0.0
    for count, (remaining, context) in enumerate(sorted(requests, reverse=True), start=1):
        held += context
        peak = max(peak, held + count * (remaining + block_size / 2))
    return peak / block_size
