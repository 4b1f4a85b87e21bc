"""What the engine process and the processes of the other ranks exchange over their socket: plans one way, faults the other.

Both ends are started by this package, with one version of it, so the messages are pickled.
"""

from dataclasses import dataclass

from sluice_engine.config import EngineOptions


@dataclass(frozen=True, slots=True)
class Start:
    """The first message to a rank. `store`: the file where the ranks find each other."""

    rank: int
    store: str
    options: EngineOptions


@dataclass(frozen=True, slots=True)
class RankFault:
    """Why a rank ends. `reason`: of `sluice.contract`; `text` does not name the rank. `starting`: the engine cannot start
    as configured.
    """

    reason: str
    text: str
    starting: bool
