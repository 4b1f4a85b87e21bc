"""From logits to tokens for a whole batch at once. `sampler.py` is the entry point; each other file implements one step
of it.
"""

from sluice_engine.sampling.draft_verify import Drafts
from sluice_engine.sampling.rng import uniform
from sluice_engine.sampling.sampler import NOT_A_NUMBER, Sampled, Sampler

__all__ = ["NOT_A_NUMBER", "Drafts", "Sampled", "Sampler", "uniform"]
