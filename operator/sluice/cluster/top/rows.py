"""The rows of the table from two passes. Requests and tokens come from the engines, the SLO from the status."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Final

from sluice.cluster.columns import Column, table
from sluice.cluster.status_table import number
from sluice.cluster.top.scrape import Pass
from sluice.sentences import wrapped
from sluice_operator.autoscaler.values import EngineSample

COLUMNS: Final = (
    Column("NAME", least=16),
    Column("READY", right=True),
    Column("RUN", right=True),
    Column("WAIT", right=True),
    Column("KV %", right=True),
    Column("TTFT ms", right=True),
    Column("SLO %", right=True),
    Column("TOKENS/S", right=True),
)


@dataclass(frozen=True, slots=True)
class Row:
    """One deployment. Values that are not known are None; `ttft_ms` is that of the status, at the target's percentile."""

    namespace: str
    name: str
    ready: int
    desired: int | None
    running: int | None
    waiting: int | None
    kv_percent: int | None
    ttft_ms: int | None
    attainment_percent: float | None
    tokens_per_second: float | None  # output tokens since the pass before; None in the first


def rows(before: Pass | None, now: Pass) -> list[Row]:
    """The rows of all deployments of a pass, in order of their names."""
    found = []
    for each in now.summaries:
        owner = (each.namespace, each.name)
        samples = now.samples.get(owner, {})
        found.append(
            Row(
                namespace=each.namespace,
                name=each.name,
                ready=each.ready,
                desired=each.desired,
                running=round(sum(one.running for one in samples.values())) if samples else None,
                waiting=round(sum(one.waiting for one in samples.values())) if samples else None,
                kv_percent=_kv_percent(list(samples.values()), each.kv_percent),
                ttft_ms=each.ttft_ms,
                attainment_percent=each.attainment_percent,
                tokens_per_second=_rate(before.samples.get(owner, {}), samples, now.at - before.at) if before else None,
            )
        )
    return found


def _kv_percent(samples: Sequence[EngineSample], otherwise: int | None) -> int | None:
    """The occupancy of all pools as one; the status has it where no engine was read."""
    blocks = sum(one.kv_blocks for one in samples)
    return round(100 * sum(one.kv_occupancy * one.kv_blocks for one in samples) / blocks) if blocks else otherwise


def _rate(before: Mapping[str, EngineSample], now: Mapping[str, EngineSample], seconds: float) -> float | None:
    """Output tokens per second of the pods that both passes read. A counter that fell began again at 0."""
    shared = before.keys() & now.keys()
    if not shared or seconds <= 0:
        return None
    total = 0.0
    for uid in shared:
        first, last = before[uid].generated_tokens_total, now[uid].generated_tokens_total
        total += last - first if last >= first else last
    return total / seconds


def top_lines(found: Sequence[Row], faults: Sequence[str], width: int, *, namespaces: bool = False) -> list[str]:
    """The table, and below it the first fault. `namespaces`: names are shown as namespace/name."""
    cells = [
        [
            f"{each.namespace}/{each.name}" if namespaces else each.name,
            f"{each.ready}/{number(each.desired)}",
            number(each.running),
            number(each.waiting),
            number(each.kv_percent),
            number(each.ttft_ms),
            number(each.attainment_percent),
            "–" if each.tokens_per_second is None else f"{each.tokens_per_second:.0f}",
        ]
        for each in found
    ]
    lines = table(COLUMNS, cells, width)
    if faults:
        pods = f"{len(faults)} pod{'s' * (len(faults) > 1)}"
        lines += wrapped(f"The metrics of {pods} are missing: {faults[0]}", width).splitlines()
    return lines


def as_json(found: Sequence[Row], faults: Sequence[str]) -> dict[str, Any]:
    """The same for a program."""
    names = {
        "ready": "readyReplicas",
        "desired": "desiredReplicas",
        "kv_percent": "kvOccupancyPercent",
        "ttft_ms": "ttftMilliseconds",
        "attainment_percent": "attainmentPercent",
        "tokens_per_second": "tokensPerSecond",
    }
    items = [{names.get(key, key): value for key, value in asdict(each).items()} for each in found]
    return {"items": items, "faults": list(faults)}
