"""From logits to tokens for a whole batch at once. Read `sampler.py` first; each other file is one idea of it."""

from sluice_engine.sampling.counter import uniform
from sluice_engine.sampling.sampler import NOT_A_NUMBER, Sampled, Sampler
from sluice_engine.sampling.verify import Drafts

__all__ = ["NOT_A_NUMBER", "Drafts", "Sampled", "Sampler", "uniform"]
