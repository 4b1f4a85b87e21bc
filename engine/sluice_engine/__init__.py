"""The continuous-batching engine. Importing this package loads no torch, so that the scheduler, the blocks and
admission run without it.

For offline use: `from sluice_engine import LLM, SamplingParams`; see `offline/llm.py`.
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from sluice_engine.offline.llm import LLM
    from sluice_engine.sampling_params import SamplingParams

__all__ = ["LLM", "SamplingParams"]


def __getattr__(name: str) -> object:
    """Import LLM and SamplingParams on first access, because LLM needs torch."""
    if name == "LLM":
        from sluice_engine.offline.llm import LLM

        return LLM
    if name == "SamplingParams":
        from sluice_engine.sampling_params import SamplingParams

        return SamplingParams
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
