"""Short prompts behind long ones, as a part of the benchmark: bars on their TTFT, the long ones' and the streams' ITL."""

import json
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path

from sluice_engine.pulled import pull
from tests.bench.longprompt.behind import CASES, ITL, LONG, SHORT, SHORTS, Case, Found
from tests.bench.longprompt.lines import measured
from tests.bench.longprompt.report import p99
from tests.bench.report import processor
from tests.bench.report.row import Report, Row, at_most

MOST_SHORT = 1.0  # s, TTFT of a short prompt
MOST_LONG = 1.3  # times the same long prompts without short ones
MOST_ITL = 1.1  # times the target, p99 of the streams


def report(out: Path, say: Callable[[str], None], cases: Sequence[Case] = CASES) -> Report:
    """Every case once, on SmolLM2. Those with short prompts need the one without in `cases`."""
    say("SmolLM2-135M-Instruct")
    command = [
        sys.executable,
        "-m",
        "tests.bench.longprompt.behind",
        str(pull("smollm2")),
        str(processor.describe().cores),
    ]
    command.append(json.dumps([asdict(each) for each in cases]))
    lines = measured(command, len(cases), out / "bench-behind.log", lambda n: say(f"case {n} of {len(cases)}"))
    found = {each.case: each for each in map(Found.read, lines)}
    return Report(rows(found), {"cases": [asdict(each) for each in found.values()]})


def rows(found: Mapping[Case, Found]) -> Sequence[Row]:
    """The bars of each case with short prompts."""
    made: list[Row] = []
    for case, each in found.items():
        if not case.shorts:
            continue
        name = _name(case)
        made.append(at_most(f"{name}: TTFT of the slowest short prompt", max(each.short), MOST_SHORT, " s"))
        alone = found[Case("fcfs", case.longs, case.streams, 0)]
        over = max(one / same for one, same in zip(sorted(each.long), sorted(alone.long), strict=True))
        made.append(at_most(f"{name}: long TTFT / the same without short prompts", over, MOST_LONG))
        if case.streams:
            made.append(at_most(f"{name}: p99 ITL of {case.streams} streams / target", p99(each.gaps) / ITL, MOST_ITL))
    return made


def _name(case: Case) -> str:
    longs = "a prompt" if case.longs == 1 else f"{case.longs} prompts"
    beside = f" beside {case.streams} streams" if case.streams else ""
    return f"{SHORTS} prompts of {SHORT} tokens behind {longs} of {LONG:,}{beside}, {case.policy}"
