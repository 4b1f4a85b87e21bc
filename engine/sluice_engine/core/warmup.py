"""Runs a few shapes before serving, because the first step of a shape compiles its primitives and would delay a
request.
"""

from sluice_engine.backend.base import TextRunner
from sluice_engine.backend.pooled_runner import PooledRunner
from sluice_engine.control.limit_controller import LimitController
from sluice_engine.errors import ModelInvalid
from sluice_engine.limits import Limits
from sluice_engine.request import Request
from sluice_engine.scheduler import Scheduler, SchedulerConfig

# (requests, prompt tokens). A GPU attends to chunks by one kernel for up to 32 query rows per sequence (tokens × query heads
# of a key-value head) and by another beyond, and multiplies by quantised weights with one kernel each for up to 16, 32 and 64
# rows: the first three loads have one of each, whatever the model and its limits are.
_LOADS = ((1, 2), (1, 24), (1, 33), (4, 16), (16, 5))


def warm_up(
    runner: TextRunner | PooledRunner, config: SchedulerConfig, max_batched_tokens: int, vocab_size: int
) -> None:
    """Run small loads through a temporary scheduler. The KV that they write is never in the serving prefix index.

    Raises ModelInvalid when every request fails, so that the failure appears at startup.
    """
    pooling = isinstance(runner, PooledRunner)
    limits = LimitController(Limits(concurrency_max=config.max_num_seqs, max_batched_tokens=max_batched_tokens))
    scheduler = Scheduler(config, limits)
    answered = 0
    errors: dict[str, str] = {}
    for load, (requests, length) in enumerate(_LOADS):
        prompt = min(length, config.max_model_length - 1)
        for index in range(min(requests, config.max_num_seqs)):
            known = [(7 * index + load + position) % vocab_size for position in range(prompt)]  # no prefix is cached
            scheduler.submit(Request(f"warm-{load}-{index}", known, max_tokens=3, arrived_at=0.0, pooling=pooling))
        while (plan := scheduler.plan(0.0)) is not None:
            result = runner.run(plan)
            errors |= result.errors
            answered += len(scheduler.settle(plan, result.sampled, 0.0, result.errors)) - len(result.errors)
    if answered == 0:
        raise ModelInvalid(f"The model cannot run: {next(iter(errors.values()))}.")
