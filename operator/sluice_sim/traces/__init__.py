"""Traces: strict parsing (a bad line is an error with its number, never skipped), and documented rules of scaling."""

from sluice_sim.traces.arrival import Arrival, BadTrace, Load, prompt_identities, prompt_tokens
from sluice_sim.traces.lengths import poisson
from sluice_sim.traces.read import Part, read_load, read_trace
from sluice_sim.traces.scaling import labelled, scaled

__all__ = [
    "Arrival",
    "BadTrace",
    "Load",
    "Part",
    "labelled",
    "poisson",
    "prompt_identities",
    "prompt_tokens",
    "read_load",
    "read_trace",
    "scaled",
]
