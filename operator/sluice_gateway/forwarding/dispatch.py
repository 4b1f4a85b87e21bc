"""Where a request goes: to the best replica with room, or into the queue of its model until one has room.

The same holds for a request that a replica has not answered, which goes only where it has not been. A replica has room while
fewer requests are at it than its published concurrency limit. Its own queue is used by no gateway, because a request that
waits there cannot start elsewhere sooner.
"""

import asyncio
import time
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from itertools import count
from math import inf
from typing import Final

from sluice.httpapi.errors import Unavailable
from sluice_gateway.queueing import FleetQueue, QueueLimits, Rejected, Waiting
from sluice_gateway.replicas.fleet import Attempt, Fleet, UnknownModel
from sluice_gateway.replicas.state import ReplicaState
from sluice_gateway.routing import Prompt

LONGEST_WAIT: Final = 2.0  # times the bound of the predicted wait: the prediction was wrong
WORDS: Final = {
    "queue_full": "The queue is full",
    "queue_bytes_full": "The bodies of the waiting requests take all memory that they may",
    "wait_too_long": "The wait would be too long",
    "displaced": "Requests of higher priority, or older ones, have taken the place of this one in the full queue",
}


@dataclass(frozen=True, slots=True)
class Claim:
    """Who asks, how urgently and since when. `deadline`: when its first token is due, infinite without a target of its own.

    Both times are of the dispatcher's clock.
    """

    tenant: str = ""
    weight: float = 1.0
    priority: int = 0
    deadline: float = inf
    size: int = 0
    arrived_at: float = 0.0


@dataclass(frozen=True, slots=True)
class _Waiter:
    prompt: Prompt
    tried: Collection[str]
    placed: asyncio.Future[Attempt | None]  # None: no replica is left to try


class Dispatcher:
    """One queue per model over one fleet."""

    def __init__(self, fleet: Fleet, limits: QueueLimits | None, clock: Callable[[], float] = time.monotonic) -> None:
        """`limits` None: there is no queue, and engines queue for themselves."""
        self._fleet = fleet
        self._limits = limits
        self._clock = clock
        self._queues: dict[str | None, FleetQueue] = {}
        self._waiters: dict[int, _Waiter] = {}
        self._numbers = count()
        fleet.on_room = self.place_waiting

    @property
    def waiting(self) -> int:
        """The number of requests in the queues."""
        return sum(map(len, self._queues.values()))

    @property
    def queues(self) -> list[FleetQueue]:
        """The queues in which requests wait."""
        return list(self._queues.values())

    async def place(
        self, prompt: Prompt, model: str | None, claim: Claim, tried: Collection[str] = ()
    ) -> tuple[Attempt | None, bool]:
        """An attempt that has begun, at a replica that is not among the tried ones, and whether the request waited for it.

        None without any such replica. Raises UnknownModel, and Unavailable for a request that the queue rejects.
        """
        order = self._fleet.order(prompt, model, tried)
        if not order:
            return None, False
        if self._limits is None or not any(state.ready for state in order):
            elsewhere = with_room(order) if tried else None
            return self._fleet.begin(elsewhere or order[0], prompt), False
        state = with_room(order)
        if state is not None and model in self._queues:
            self.place_waiting()  # they go first; what is left is where none of them may go
            state = with_room(order)
        if state is not None:
            return self._fleet.begin(state, prompt), False
        waiter = _Waiter(prompt, tuple(tried), asyncio.get_running_loop().create_future())
        return await self._queued(waiter, model, claim, self._limits), True

    async def _queued(self, waiter: _Waiter, model: str | None, claim: Claim, limits: QueueLimits) -> Attempt | None:
        now, number = self._clock(), next(self._numbers)
        queue = self._queues.setdefault(model, FleetQueue(limits))
        work = max(1.0, waiter.prompt.tokens)
        item = Waiting(
            number, claim.tenant, claim.weight, claim.priority, claim.deadline, work, claim.size, claim.arrived_at
        )
        self._waiters[number] = waiter
        try:
            for rejected, why in queue.offer(item, now).items():
                placed = self._waiters[rejected].placed
                if not placed.done():  # else its client has gone
                    placed.set_exception(_error(why))
            self.place_waiting()
            async with asyncio.timeout(LONGEST_WAIT * limits.wait_seconds):
                return await waiter.placed
        except TimeoutError as error:
            self._give_back(waiter)
            raise _error(Rejected("wait_too_long", queue.predicted_wait(claim.priority, self._clock()))) from error
        except asyncio.CancelledError:
            self._give_back(waiter)
            raise
        finally:
            del self._waiters[number]
            queue.leave(number)
            self._drop_if_empty(model)

    def place_waiting(self) -> None:
        """Start waiting requests as far as replicas have room."""
        for model, queue in list(self._queues.items()):
            try:
                self._place(model, queue)
            except UnknownModel as error:  # its last replica has been removed
                while (item := queue.pop(self._clock())) is not None:
                    self._waiters[item.number].placed.set_exception(UnknownModel(str(error)))
            self._drop_if_empty(model)

    def _place(self, model: str | None, queue: FleetQueue) -> None:
        now, passed_over = self._clock(), set[int]()
        while (item := queue.peek(now, passed_over)) is not None:
            waiter = self._waiters[item.number]
            if waiter.placed.done():  # its client has gone
                queue.leave(item.number)
                continue
            order = self._fleet.order(waiter.prompt, model)
            untried = [state for state in order if state.backend.name not in waiter.tried]
            if waiter.tried and not untried:
                queue.leave(item.number)
                waiter.placed.set_result(None)
            elif (state := with_room(untried)) is not None:
                queue.start(item, now)
                waiter.placed.set_result(self._fleet.begin(state, waiter.prompt))
            elif with_room(order) is not None:  # where this request has been, another one may start
                passed_over.add(item.number)
            else:
                return

    def _give_back(self, waiter: _Waiter) -> None:
        """End an attempt that has begun for a request that no longer waits."""
        placed = waiter.placed
        if placed.done() and not placed.cancelled() and placed.exception() is None:
            attempt = placed.result()
            if attempt is not None:
                self._fleet.end(attempt)

    def _drop_if_empty(self, model: str | None) -> None:
        """A queue exists while requests wait in it, so that names of models take no memory."""
        if model in self._queues and not self._queues[model]:
            del self._queues[model]


def with_room(order: Sequence[ReplicaState]) -> ReplicaState | None:
    """The first ready replica below its limit."""
    return next((state for state in order if state.ready and state.has_room), None)


def _error(why: Rejected) -> Unavailable:
    return Unavailable(
        f"{WORDS[why.reason]}: all replicas are at their limits. Send it again in {why.retry_after:.0f} s.",
        code=why.reason,
        retry_after=why.retry_after,
    )
