"""The gateway: a router in front of the engines with one URL for all replicas.

It depends on neither operator nor engine: a callable gives it the ready replicas.
"""

from sluice_gateway.backends import Backend, RoundRobin
from sluice_gateway.holding import HoldQueue
from sluice_gateway.server import Gateway, PortTaken

__all__ = ["Backend", "Gateway", "HoldQueue", "PortTaken", "RoundRobin"]
