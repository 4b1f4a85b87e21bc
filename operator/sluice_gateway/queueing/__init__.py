"""The queue of a fleet whose replicas are all at their concurrency limit. No I/O; time is an argument."""

from sluice_gateway.queueing.fleet_queue import FleetQueue
from sluice_gateway.queueing.values import QueueLimits, Rejected, Waiting

__all__ = ["FleetQueue", "QueueLimits", "Rejected", "Waiting"]
