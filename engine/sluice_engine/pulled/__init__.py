"""Models that were pulled to this machine: by a known name, a URI or a path. Imports no torch."""

from sluice_engine.pulled.build import Origin, read_origin
from sluice_engine.pulled.catalogue import KnownModel, known_models
from sluice_engine.pulled.facts import ModelFacts, read_facts
from sluice_engine.pulled.in_use import held, is_held
from sluice_engine.pulled.names import find_pulled, what_exists
from sluice_engine.pulled.pulling import Event, pull, servable

__all__ = [
    "Event",
    "KnownModel",
    "ModelFacts",
    "Origin",
    "find_pulled",
    "held",
    "is_held",
    "known_models",
    "pull",
    "read_facts",
    "read_origin",
    "servable",
    "what_exists",
]
