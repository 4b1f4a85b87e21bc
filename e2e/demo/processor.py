"""CPU usage of each engine while it serves, from the kernel's process accounting."""

import asyncio
import time
from contextlib import suppress
from dataclasses import dataclass

import psutil

from e2e.demo.fleet import Fleet

EVERY_SECONDS = 1.0


@dataclass(slots=True)
class Share:
    """CPU usage of one engine since it was first ready."""

    first_at: float
    first_cpu: float
    last_at: float
    last_cpu: float

    @property
    def cores(self) -> float:
        """Mean cores in use."""
        seconds = self.last_at - self.first_at
        return (self.last_cpu - self.first_cpu) / seconds if seconds > 0 else 0.0


def cpu_seconds(pid: int) -> float:
    """User and system time of a process and its children so far. Raises psutil.Error."""
    process = psutil.Process(pid)  # type: ignore[no-untyped-call]
    total = 0.0
    for one in (process, *process.children(recursive=True)):  # type: ignore[no-untyped-call]
        with suppress(psutil.NoSuchProcess):
            times = one.cpu_times()
            total += times.user + times.system
    return total


async def watch_shares(fleet: Fleet, shares: dict[str, Share]) -> None:
    """Fill `shares` (pod name → share) until cancelled."""
    while True:
        for pod in fleet.timeline.states[-1].line["pods"] if fleet.timeline.states else ():
            if pod["phase"] == "ready" and pod["pid"]:
                with suppress(psutil.Error):
                    now, cpu = time.monotonic(), cpu_seconds(pod["pid"])
                    share = shares.setdefault(pod["name"], Share(now, cpu, now, cpu))
                    share.last_at, share.last_cpu = now, cpu
        await asyncio.sleep(EVERY_SECONDS)
