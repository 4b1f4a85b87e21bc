"""The most KV memory that a set of running requests will hold at any time to come (Past-Future, ASPLOS'25, eq. 3).

Each request grows by a token per step and gives everything back at its end, so the peak stands at the end of one of
them. With requests in order of what they still write, longest first, r_i tokens to go and c_i tokens held,

    peak = max over i of  Σ_{j ≤ i} c_j  +  i · r_i

and where each holds a window of W tokens at most, no term is above i · W.
"""

import math
from collections.abc import Iterable


def predicted_peak(requests: Iterable[tuple[int, int]], block_size: int, window: int | None = None) -> float:
    """Blocks at the peak, for (tokens still to write, tokens held once its prompt is computed) of each request.

    On the mean half of each request's last block is empty at any time, and so is half of the first one of a window.
    """
    held, peak = 0, 0.0
    most = math.inf if window is None else window + block_size
    for count, (remaining, context) in enumerate(sorted(requests, reverse=True), start=1):
        held += context
        peak = max(peak, min(held + count * (remaining + block_size / 2), count * most))
    return peak / block_size
