"""The progress that shadow queues take their mean output from."""

from sluice_engine.control.limit_controller import LimitController
from sluice_engine.limits import Limits
from sluice_engine.request import Request
from sluice_engine.scheduler import Scheduler, SchedulerConfig
from sluice_engine.scheduler.load_shedding.shadow_arrivals import decode_progress


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
