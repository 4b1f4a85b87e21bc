"""The predicted peak KV memory of a set of running requests (Past-Future, ASPLOS'25, eq. 3).

Each request grows by a token per step and releases its blocks at its end, so the peak is at the end of one of them.
With requests in order of remaining output, longest first, r_i tokens to go and c_i tokens held,

    peak = max over i of  Σ_{j ≤ i} c_j  +  i · r_i

and where each holds a window of W tokens at most, no term is above i · W. Groups of layers with
different windows add up in each term.
"""

from collections.abc import Iterable, Sequence


def predicted_peak(
    requests: Iterable[tuple[int, int]], block_size: int, windows: Sequence[int | None] = (None,)
) -> float:
    """Blocks at the peak, for (remaining output tokens, tokens held once its prompt is computed) of each request, with the
    window of each group of layers in `windows`.

    On average half of each request's last block is empty, and so is half of the first block of a window.
    """
    held, peak = 0, 0.0
    full = windows.count(None)
    window_tokens = [window + block_size for window in windows if window is not None]
    for count, (remaining, context) in enumerate(sorted(requests, reverse=True), start=1):
        held += context
        tokens = held + count * (remaining + block_size / 2)
        total = full * tokens
        for most in window_tokens:
            total += min(tokens, count * most)
        peak = max(peak, total)
    return peak / block_size
