"""Routing as a pure policy: no I/O, no clock, no random numbers. The gateway and the simulator run this code.

`Router` orders the replicas for a prompt, by what they have published and by what they probably have cached.
"""

from sluice_gateway.routing.policies import POLICIES, PolicyName, Routing
from sluice_gateway.routing.prefix_hashes import prefix_hashes
from sluice_gateway.routing.revisions import Canary, draw_of
from sluice_gateway.routing.router import Router
from sluice_gateway.routing.values import Prompt, Replica

__all__ = ["POLICIES", "Canary", "PolicyName", "Prompt", "Replica", "Router", "Routing", "draw_of", "prefix_hashes"]
