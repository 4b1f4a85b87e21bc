"""What the shadow queues see: the progress of decoding, and when a request arrived that waited in a gateway."""

from sluice_engine.control.limit_controller import LimitController
from sluice_engine.limits import Limits
from sluice_engine.request import Request
from sluice_engine.scheduler import Scheduler, SchedulerConfig
from sluice_engine.scheduler.load_shedding.shadow_arrivals import decode_progress
from sluice_perfmodel.shadow_queues import LOADS
from sluice_perfmodel.step_time import StepTimeModel


def run(scheduler: Scheduler, steps: int) -> None:
    for step in range(steps):
        plan = scheduler.plan(0.1 * step)
        assert plan is not None
        scheduler.settle(plan, [7] * sum(row.samples for row in plan.rows), 0.1 * step + 0.1)


def test_a_cancelled_request_keeps_the_tokens_that_it_has_generated() -> None:
    config = SchedulerConfig(num_blocks=64, block_size=16, max_model_length=256)
    scheduler = Scheduler(config, LimitController(Limits(concurrency_max=4)))
    scheduler.submit(Request("long", [1] * 10, 50, 0.0))
    scheduler.submit(Request("short", [2] * 10, 5, 0.0))
    run(scheduler, 10)
    assert (decode_progress(scheduler.state).generated, scheduler.state.finished) == (15, 1)
    assert scheduler.cancel("long")
    after = decode_progress(scheduler.state)
    assert (after.generated, after.finished, after.context) == (15, 1, None)


def late_of(waits: list[float]) -> list[float]:
    """Late requests per load after twenty prompts that came 0.3 s apart and waited so long in a gateway. An engine computes
    one in 0.25 s beside its base.
    """
    config = SchedulerConfig(num_blocks=4096, block_size=16, max_model_length=256)
    scheduler = Scheduler(config, LimitController(Limits(concurrency_max=64, ttft_target=1.0)))
    scheduler.state.model = StepTimeModel(base=0.02, prefill_token=0.0025, sequence=0.001, steps=1000)
    scheduler.state.finished, scheduler.state.ended_tokens = 10, 50
    for number, waited in enumerate(waits):
        came = 0.3 * number
        scheduler.state.clock = came + waited
        scheduler.submit(Request(str(number), [number] * 100, 5, came, waited=waited))
    return list(scheduler.state.shadow.queues.late)


def test_a_wait_in_a_gateway_changes_nothing_that_the_shadow_queues_count() -> None:
    direct = late_of([0.0] * 20)
    assert direct[LOADS.index(0.5)] == 0.0 < direct[LOADS.index(2.0)]
    assert late_of([0.2 * number for number in range(20)]) == direct, (
        "the wait grows: the engine admits at its own rate"
    )
    assert late_of([max(0.0, 2.0 - 0.2 * number) for number in range(20)]) == direct, "it shrinks as replicas come"
