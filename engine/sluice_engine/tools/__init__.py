"""Tool calls: what a request offers, how a prompt shows it, and how a model's text becomes calls. Pure, no torch.

A model writes calls in the notation that it was trained on (`dialects`); which one is told by its chat template. A call
that must happen (`tool_choice` required or a function) is held to its schema by a grammar instead (`schemas`).
"""

from sluice_engine.tools.calls import ArgumentsDelta, CallBegun, Event, TextDelta
from sluice_engine.tools.definition import Tool, ToolChoice
from sluice_engine.tools.dialects import Dialect, dialect_of, parser_of, why_dialect

__all__ = [
    "ArgumentsDelta",
    "CallBegun",
    "Dialect",
    "Event",
    "TextDelta",
    "Tool",
    "ToolChoice",
    "dialect_of",
    "parser_of",
    "why_dialect",
]
