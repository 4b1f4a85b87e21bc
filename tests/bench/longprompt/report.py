"""Long prompts among decoding streams, as a part of the benchmark.

It has rows for the latency-driven chunks and for each fixed size, and a plot of inter-token times during the prompt.
"""

import json
import statistics
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.bench.longprompt.episode import LONG_PROMPT, STREAMS, TARGET_OVER_P50
from tests.bench.longprompt.lines import measured
from tests.bench.report import figure, processor
from tests.bench.report.row import Report, Row, at_most
from tests.bench.throughput.llama import ensure

FIXED = (128, 256, 512, 1024, 2048)  # tokens
LEARNING: Sequence[int | None] = (2048, None)  # train the step model; not counted
ORDER: Sequence[int | None] = (128, 256, None, 512, 1024, None, 2048, None)  # None: latency-driven
MOST_P99 = 1.1  # times T
MOST_TTFT = 1.3  # times the least that the step model allows at T
DRIVEN = "latency-driven"


@dataclass(frozen=True, slots=True)
class Found:
    """The episodes of one kind of chunk; medians over them."""

    name: str
    episodes: Sequence[Mapping[str, Any]]

    @property
    def p99_over_target(self) -> float:
        """p99 of the streams' inter-token times while the prompt is in the engine, over T."""
        return statistics.median(p99(gaps(each)) / each["target"] for each in self.episodes)

    @property
    def ttft_over_least(self) -> float | None:
        """The long prompt's TTFT over the least that the step model allows at T.

        None if the model, fitted on a machine with other load, leaves no time for a prompt.
        """
        if any(each["least_ttft"] is None for each in self.episodes):
            return None
        return statistics.median(each["ttft"] / each["least_ttft"] for each in self.episodes)

    def median(self, of: Callable[[Mapping[str, Any]], float]) -> float:
        """Median over the episodes."""
        return statistics.median(of(each) for each in self.episodes)


def gaps(episode: Mapping[str, Any]) -> list[float]:
    """Inter-token times of steps that ended after the prompt's arrival, one per step because all streams share it."""
    return [step["gap"] for step in episode["steps"] if step["at"] > 0]


def p99(values: Sequence[float]) -> float:
    """The smallest value that 99 % do not exceed."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, -(-99 * len(ordered) // 100) - 1)]


def report(out: Path, say: Callable[[str], None]) -> Report:
    """Every fixed chunk once, with three latency-driven episodes between them."""
    counted = _run([*LEARNING, *ORDER], out / "bench-longprompt.log", say)[len(LEARNING) :]
    found = [
        Found(DRIVEN if kind is None else f"chunks of {kind}", [each for each in counted if each["chunk"] == kind])
        for kind in (*FIXED, None)
    ]
    driven = found[-1]
    rows = [Row(f"{LONG_PROMPT:,}-token prompt among {STREAMS} streams, {each.name}", _line(each)) for each in found]
    rows += [
        at_most(f"p99 ITL / T, {DRIVEN}", driven.p99_over_target, MOST_P99),
        at_most(f"TTFT / the least by the step model at T, {DRIVEN}", driven.ttft_over_least, MOST_TTFT),
    ]
    data = {each.name: [_summary(episode) for episode in each.episodes] for each in found}
    return Report(rows, data, [draw(found, out / "long-prompt-itl.png")])


def _run(order: Sequence[int | None], log: Path, say: Callable[[str], None]) -> list[dict[str, Any]]:
    """The episodes, measured in a separate process. Raises RuntimeError if it ends early."""
    command = [sys.executable, "-m", "tests.bench.longprompt.episode"]
    command += [str(ensure()), str(processor.describe().cores), json.dumps(order)]
    return measured(command, len(order), log, lambda number: say(f"long prompt {number} of {len(order)}"))


def _line(found: Found) -> str:
    p99_ms = found.median(lambda each: 1000 * p99(gaps(each)))
    ttft, over = found.median(lambda each: each["ttft"]), found.ttft_over_least
    of_least = "" if over is None else f" ({over:.2f} of the least)"
    return f"p99 ITL {p99_ms:,.1f} ms ({found.p99_over_target:.2f} T), TTFT {ttft:.2f} s{of_least}"


def _summary(episode: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in episode.items() if key != "steps"} | {
        "steps": len(gaps(episode)),
        "p99_itl": p99(gaps(episode)),
    }


def draw(found: Sequence[Found], to: Path) -> Path:
    """The last episode with the largest fixed chunk above, the last latency-driven one below, on one time axis."""
    fixed, driven = found[-2], found[-1]
    title = f"Inter-token times of {STREAMS} streams while an {LONG_PROMPT:,}-token prompt arrives at 0 s"
    with figure.drawing(title, to, rows=2) as axes:
        for axis, each in zip(axes, (fixed, driven), strict=True):
            episode = each.episodes[-1]
            shown = [step for step in episode["steps"] if step["at"] > -1.0]
            times, values = [s["at"] for s in shown], [1000 * s["gap"] for s in shown]
            axis.vlines(times, 0, values, color=figure.OURS if each is driven else figure.PEER, lw=1)
            axis.plot(times, values, "o", ms=2, color=figure.DOT)
            axis.axhline(
                1000 * episode["target"],
                color=figure.TARGET,
                lw=1,
                label=f"T = {TARGET_OVER_P50:g} × the p50 of decoding alone",
            )
            axis.axvline(episode["ttft"], color=figure.DOT, lw=1, ls=":", label="the prompt's first token")
            axis.set_title(f"{each.name}: p99 {1000 * p99(gaps(episode)):,.0f} ms", fontsize=9)
            axis.set_ylabel("inter-token time, ms")
            axis.set_yscale("log")
            axis.legend(fontsize=8)
        axes[-1].set_xlabel("seconds since the prompt came")
    return to
