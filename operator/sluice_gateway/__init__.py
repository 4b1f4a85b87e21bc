"""The router in front of the engines: one URL for all replicas.

Knows neither operator nor engine: it is handed a callable that gives the replicas to send to.
"""

from sluice_gateway.backends import Backend, RoundRobin
from sluice_gateway.door import Door
from sluice_gateway.server import Gateway, PortTaken

__all__ = ["Backend", "Door", "Gateway", "PortTaken", "RoundRobin"]
