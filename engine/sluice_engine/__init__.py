"""Our continuous-batching engine. Importing it loads no torch: the scheduler, blocks and admission run without.

For offline use: `from sluice_engine import LLM, SamplingParams`; see `llm.py`.
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from sluice_engine.llm import LLM
    from sluice_engine.params import SamplingParams

__all__ = ["LLM", "SamplingParams"]


def __getattr__(name: str) -> object:
    """LLM and SamplingParams when they are asked for: the one needs torch, the other msgspec."""
    if name == "LLM":
        from sluice_engine.llm import LLM

        return LLM
    if name == "SamplingParams":
        from sluice_engine.params import SamplingParams

        return SamplingParams
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
