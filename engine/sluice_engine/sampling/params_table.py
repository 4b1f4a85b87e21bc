"""Sampling parameters as columns with one entry per slot, so that a step reads them without a loop over requests.

`flags` has one bit per feature that a slot uses. Their bitwise or over a batch selects the code to run, so that unused
features cost nothing.
"""

import numpy as np
from numpy.typing import NDArray

from sluice_engine.sampling.rng import as_seeds
from sluice_engine.sampling_params import SamplingParams

RANDOM = 1  # temperature of at least GREEDY_BELOW
TRUNCATED = 2  # top-k or top-p: needs sorted tokens
PENALISED = 4  # presence, frequency or repetition penalty: needs token counts
EDITED = 8  # logit bias, or stop tokens barred until min_tokens
LOGPROBS = 16
WORDED = 32  # bad words: needs the end of the output
GRAMMAR = 64  # a grammar: needs the mask of the allowed tokens
GREEDY_BELOW = 1e-5  # sampled greedily: such a temperature may round to 0 in float32, and 0 / 0 is NaN


class SlotTable:
    """Columns over `slots` slots; a joining request overwrites its slot."""

    def __init__(self, slots: int) -> None:
        self.flags: NDArray[np.uint8] = np.zeros(slots, dtype=np.uint8)
        self.used = 0  # bitwise or of `flags`; an ended request counts until its slot is taken again
        self.temperature: NDArray[np.float32] = np.ones(slots, dtype=np.float32)
        self.top_k: NDArray[np.int64] = np.zeros(slots, dtype=np.int64)
        self.top_p: NDArray[np.float64] = np.ones(slots, dtype=np.float64)
        self.min_p: NDArray[np.float32] = np.zeros(slots, dtype=np.float32)
        self.seed: NDArray[np.uint64] = np.zeros(slots, dtype=np.uint64)
        self.presence: NDArray[np.float32] = np.zeros(slots, dtype=np.float32)
        self.frequency: NDArray[np.float32] = np.zeros(slots, dtype=np.float32)
        self.repetition: NDArray[np.float32] = np.ones(slots, dtype=np.float32)
        self.logprobs: NDArray[np.int64] = np.zeros(slots, dtype=np.int64)
        self.prompt_logprobs: NDArray[np.int64] = np.zeros(slots, dtype=np.int64)

    def join(self, slot: int, sampling: SamplingParams) -> None:
        """Set the parameters of the slot's request."""
        flags = 0
        if sampling.temperature >= GREEDY_BELOW:
            flags |= RANDOM
            if sampling.top_k > 0 or sampling.top_p < 1.0:
                flags |= TRUNCATED
        if sampling.has_penalties:
            flags |= PENALISED
        if sampling.logit_bias or sampling.min_tokens > 0:
            flags |= EDITED
        if sampling.logprobs is not None:
            flags |= LOGPROBS
        if sampling.bad_words:
            flags |= WORDED
        if sampling.grammar is not None:
            flags |= GRAMMAR
        self.flags[slot] = flags
        self.used = int(np.bitwise_or.reduce(self.flags))
        self.temperature[slot] = sampling.temperature
        self.top_k[slot] = sampling.top_k
        self.top_p[slot] = sampling.top_p
        self.min_p[slot] = sampling.min_p
        self.seed[slot] = as_seeds([sampling.seed or 0])[0]
        self.presence[slot] = sampling.presence_penalty
        self.frequency[slot] = sampling.frequency_penalty
        self.repetition[slot] = sampling.repetition_penalty
        self.logprobs[slot] = sampling.logprobs or 0
        self.prompt_logprobs[slot] = sampling.prompt_logprobs or 0
