"""Requests that are sent to a real engine's loop at given times, and a record of their results.

The clock and the wait function are arguments: real ones measure, manual ones make a reproducible recording.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from sluice_engine import messages
from sluice_engine.core.engine import EngineLoop
from sluice_engine.core.process import serve
from sluice_engine.sampling_params import SamplingParams
from sluice_perfmodel.step_time import StepWork
from sluice_sim.cluster.request import RequestRecord
from sluice_sim.engine.step_times import RecordedStep
from sluice_sim.traces import Arrival


class _Ended(Exception):
    """Every request has finished."""


@dataclass
class Timeline:
    """A channel of the engine's loop. Seconds of `clock`, from `begun` on. `records` are in the order of `arrivals`."""

    arrivals: Sequence[Arrival]
    prompts: Sequence[tuple[int, ...]]
    clock: Callable[[], float]
    wait: Callable[[float], None]
    begun: float = 0.0
    records: list[RequestRecord] = field(default_factory=list)
    taken: list[float] = field(default_factory=list)  # when the engine received each request
    steps: list[RecordedStep] = field(default_factory=list)
    work: list[tuple[StepWork, float]] = field(default_factory=list)  # the work of each step, and its seconds
    _sent: int = 0
    _ended: int = 0

    def received(self, wait: float) -> list[messages.ToEngine]:
        """The requests that have arrived; waits up to `wait` seconds for the first."""
        due = self._due()
        if not due and wait > 0:
            if self._ended == len(self.arrivals):
                raise _Ended
            left = self.begun + self.arrivals[self._sent].at - self.clock() if self._sent < len(self.arrivals) else wait
            self.wait(max(0.0, min(wait, left)))
            due = self._due()
        return due

    def wake(self) -> None:
        """`wait` ends by its clock alone."""

    def send(self, message: messages.FromEngine) -> None:
        """Record a step. Raises RuntimeError for a rejection or a failure, which no measurement may contain."""
        if not isinstance(message, messages.StepReport):
            raise RuntimeError(f"the engine refused or failed: {message}")  # noqa: TRY004 - what came of a request
        if message.sequences or message.prefill_tokens:
            self.steps.append(RecordedStep(message.ended_at, message.seconds))
            work = StepWork(message.prefill_tokens, message.prefill_context, message.sequences, message.kv_tokens)
            self.work.append((work, message.seconds))
        for delta in message.deltas:
            record = self.records[int(delta.request_id[1:])]
            if record.first_at is None:
                record.first_at = message.ended_at - self.begun
            if delta.finish is not None:
                if delta.finish != "length":
                    raise RuntimeError(f"{delta.request_id} ended with {delta.finish}: {delta.error}")
                record.ended_at = message.ended_at - self.begun
                self._ended += 1

    def begun_steps(self) -> list[tuple[float, StepWork, float]]:
        """Start of each step in seconds from `begun` on, its work, and its seconds."""
        return [
            (step.ended_at - step.seconds - self.begun, work, seconds)
            for step, (work, seconds) in zip(self.steps, self.work, strict=True)
        ]

    def _due(self) -> list[messages.ToEngine]:
        due: list[messages.ToEngine] = []
        while self._sent < len(self.arrivals) and self.begun + self.arrivals[self._sent].at <= self.clock():
            one, prompt = self.arrivals[self._sent], self.prompts[self._sent]
            params = SamplingParams(max_tokens=one.output, temperature=0.0, ignore_eos=True)
            due.append(messages.Submit(f"r{self._sent}", prompt, params, self.begun + one.at, one.priority, one.tenant))
            self.taken.append(self.clock())
            self.records.append(RequestRecord(one.at, one.prompt, one.output))
            self._sent += 1
        return due


def serve_all(engine: EngineLoop, timeline: Timeline) -> None:
    """Run the engine's own loop until the last request has finished."""
    try:
        serve(timeline, engine)
    except _Ended:
        return
