"""The corpus's task: one run of a law on a load, as a value that a process pool can transfer, with its key."""

import hashlib
import json
import time
from dataclasses import asdict, dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, Final

from sluice_sim.benchmark.corpus.arrivals import arrivals_of, data_of
from sluice_sim.benchmark.corpus.figures import figures_of, to_dict
from sluice_sim.benchmark.corpus.laws import (
    CONSTANT,
    OWN,
    PEERS,
    SCHEDULE,
    STOCK,
    is_ours,
    late_schedule,
    law_named,
)
from sluice_sim.benchmark.corpus.load import Load, read_loads
from sluice_sim.benchmark.corpus.variants import VARIANTS
from sluice_sim.benchmark.run.provenance import LENGTH, digest_of
from sluice_sim.benchmark.run.runner import TaskKind
from sluice_sim.benchmark.run.sources import reached, sources
from sluice_sim.benchmark.search.schedule import Scheduled
from sluice_sim.cluster.fleet import Fleet
from sluice_sim.collector import uncollected
from sluice_sim.policies.policy import Law

OWN_PREFIX: Final = "own"  # of the keys of Sluice's own pieces
# Folders of the law: a change makes Sluice's own pieces stale and no others. Constant fleets read the admission bounds
# of the autoscaler as well; they are measured again when the engine or the simulator changes.
_OF_THE_LAW: Final = ("sluice_operator/autoscaler", "sluice_perfmodel", "policies/sluice.py")
_ROOTS: Final = tuple(f"sluice_sim.benchmark.corpus.{name}" for name in ("figures", "arrivals"))
_STOP: Final = ("sluice_sim.engine.exact",)


@dataclass(frozen=True, slots=True)
class LawRun:
    """One run of a law on a load. `setting` None means the law's default; for a constant fleet it is the count.

    A schedule has `counts` per piece of `schedule.PIECE` seconds and begins with the first of them; `from_fewest` makes
    it begin as a law does, with the load's fewest replicas and its first order at t = 0. A late schedule begins so too;
    its `setting` is the delay in seconds."""

    load: str
    law: str
    setting: float | None = None
    counts: tuple[int, ...] = ()
    from_fewest: bool = False


def key(task: LawRun) -> str:
    """The key of the task in the store: digests of the question and of the code that answers it."""
    load = read_loads()[task.load]
    described = asdict(load)
    for said in ("family", "size"):  # no figure depends on these
        del described[said]
    parts = [json.dumps(described, sort_keys=True), json.dumps(asdict(task), sort_keys=True)]
    if task.law in VARIANTS:
        parts.append(VARIANTS[task.law].description())
    digest = hashlib.sha256("\n".join(parts).encode())
    for path in data_of(load):
        digest.update(f"\n{path.name} {_digest(path)}".encode())
    prefix = OWN_PREFIX if is_ours(task.law) else ""
    return f"{prefix}{digest.hexdigest()[:LENGTH]}-{code_of_law(task.law)}"


def describe(task: LawRun) -> str:
    """A description of the task, for readers of the store and of the progress output."""
    if task.counts:
        start = " from the fewest" if task.from_fewest else ""
        if task.setting is not None:
            start = f", {task.law} by {task.setting:g} s"
        return f"{task.load}: schedule of {sum(task.counts) / len(task.counts):.2f} replicas{start}"
    return f"{task.load}: {task.law}{'' if task.setting is None else f' {task.setting:g}'}"


def measure(task: LawRun) -> dict[str, Any]:
    """Run the task. It takes seconds."""
    load = read_loads()[task.load]
    law, arrivals = _law(task, load), arrivals_of(load)
    began = time.process_time()
    with uncollected():
        run = Fleet(load.spec(), load.settings(_begin(task)), law).run(arrivals)
        found = figures_of(run, load, time.process_time() - began)
    return to_dict(found)


CORPUS: Final = TaskKind(key, describe, measure)


@lru_cache(maxsize=64)
def code_of_law(law: str) -> str:
    """Digest of the code behind the runs of a law."""
    files = reached(_ROOTS, _STOP)
    if is_ours(law):
        return digest_of(files | set(sources(OWN, "coarse")))
    kind = PEERS[0] if law in PEERS else "static"
    others = files | set(sources(kind, "coarse"))
    return digest_of(path for path in others if not any(part in path.as_posix() for part in _OF_THE_LAW))


def _law(task: LawRun, load: Load) -> Law:
    """The law that the task runs."""
    if not task.counts:
        return law_named(task.law, task.setting)
    if task.setting is None:
        return Scheduled(task.counts, load.cold_start)
    return late_schedule(task.law, task.counts, load, task.setting)


def _begin(task: LawRun) -> int | None:
    """The replicas at the start; None for the load's fewest."""
    if task.law in (CONSTANT, STOCK):
        return round(task.setting or 1.0)
    return task.counts[0] if task.law == SCHEDULE and not task.from_fewest else None


@lru_cache(maxsize=64)
def _digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()
