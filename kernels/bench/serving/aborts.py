"""Requests that are aborted at any moment leave nothing behind: no block of the KV pool, no slot, no memory."""

import random
import resource
from pathlib import Path
from typing import Final

import torch
from bench.serving import models
from bench.serving.drive import prompts, started, submit

from sluice_engine import messages
from sluice_engine.core.engine import EngineLoop

ABORTS: Final = 1000
SMALL_ABORTS: Final = 100
WARM_UP: Final = 0.2  # of the aborts come before memory is first read
HOST_GROWTH: Final = 64 << 20  # bytes


class Leak(AssertionError):
    """Something of the aborted requests is left."""


def check(device: str, folder: Path, *, small: bool) -> None:
    """Raises Leak. The scheduler's books are recounted after every abort."""
    engine = started(models.save_small(folder), models.on_device(device), kv_size=4 << 20, max_num_seqs=16)
    count = SMALL_ABORTS if small else ABORTS
    abort(engine, int(WARM_UP * count), seed=1)
    before = memory(device)
    abort(engine, count - int(WARM_UP * count), seed=2)
    after = memory(device)
    pool = engine.scheduler.pool
    print(f"{count} aborts: {pool.held} blocks held, memory on the device {after[0] - before[0]:+d} B, "
          f"on the host {(after[1] - before[1]) >> 20:+d} MiB")  # fmt: skip
    if pool.held or engine.scheduler.requests:
        raise Leak(f"{pool.held} blocks and {len(engine.scheduler.requests)} requests are left")
    if after[0] > before[0] or after[1] - before[1] > HOST_GROWTH:
        raise Leak(f"memory grew from {before} to {after} bytes (device, host)")


def abort(engine: EngineLoop, count: int, seed: int) -> None:
    """Abort so many requests while they wait, prefill or decode. Ends with an idle engine."""
    dice, alive = random.Random(seed), dict[str, None]()
    given = iter(prompts(count, (1, 200), models.SMALL.vocab_size, seed))
    for index in range(count):
        name = f"{seed}-{index}"
        submit(engine, name, next(given), 200, temperature=dice.choice((0.0, 1.0)), seed=index)
        alive[name] = None
        for _ in range(dice.choice((0, 1, 1, 3))):
            engine.step()
        if len(alive) > dice.choice((1, 8, 24)):
            drop(engine, dice.choice(list(alive)), alive)
    while alive:
        engine.step()
        drop(engine, next(iter(alive)), alive)
    engine.finish_running_steps()
    while engine.has_work:
        engine.step()


def drop(engine: EngineLoop, name: str, alive: dict[str, None]) -> None:
    """Abort this request, and recount."""
    del alive[name]
    engine.cancel(messages.Cancel(name, "abort"))
    engine.scheduler.check()


def memory(device: str) -> tuple[int, int]:
    """Bytes that torch holds on the device, and the largest resident size of this process so far."""
    held = torch.cuda.memory_allocated() if device == "cuda" else 0
    return held, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss << 10
