"""Speculation off, on and auto, interleaved in one process.

There are two extreme texts. One repeats a single token, forced by a bias, so every draft is right. One is sampled from
four tokens, so that lookups match often and are mostly wrong. Each runs with one stream and with 16. The unit is tokens
per second of processor time with one compute thread, which other load on the machine affects least.
"""

import statistics
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

from sluice_engine import LLM, SamplingParams
from tests.bench.report.row import Report, Row, at_least
from tests.bench.throughput.llama import ensure

MODES = ("off", "on", "auto")
ROUNDS = 3
TOKENS = 96
STREAMS = (1, 16)
TEXTS = {
    "repeats": SamplingParams(max_tokens=TOKENS, temperature=0.0, ignore_eos=True, logit_bias={7: 100.0}),
    "drawn": SamplingParams(
        max_tokens=TOKENS, temperature=1.0, seed=5, ignore_eos=True, logit_bias=dict.fromkeys(range(7, 11), 100.0)
    ),
}
TITLES = {"repeats": "repeats itself", "drawn": "is drawn from four tokens"}
LEAST_WHERE_WRONG = 0.95  # auto over off where drafts are wrong: auto must have disabled itself


@dataclass(frozen=True, slots=True)
class Found:
    """One kind of text at one number of streams, by mode: median tokens per second, drafted tokens, accepted tokens."""

    text: str
    streams: int
    rates: Mapping[str, float]
    drafted: Mapping[str, int]
    accepted: Mapping[str, int]

    def over_off(self, mode: str) -> float:
        """The mode's speed over the speed without speculation."""
        return self.rates[mode] / self.rates["off"]

    @property
    def row(self) -> Row:
        """A row for the table."""
        modes = (
            f"{mode} {self.over_off(mode):.2f} × ({self.accepted[mode]:,} of {self.drafted[mode]:,} drafts accepted)"
            for mode in MODES[1:]
        )
        speed = f"off {self.rates['off']:,.0f} tokens/s of processor time"
        return Row(f"text that {TITLES[self.text]}, {self.streams} at a time", f"{speed}, {', '.join(modes)}")


def report(_out: Path, say: Callable[[str], None]) -> Report:
    """All kinds of text, and the bar that auto costs nothing where drafts are wrong."""
    folder = str(ensure())
    engines = {mode: LLM(folder, threads=1, kv_size=256 << 20, speculation=mode) for mode in MODES}
    found = []
    for text in TEXTS:
        for streams in STREAMS:
            say(f"speculation: text that {TITLES[text]}, {streams} at a time")
            found.append(measure(engines, text, streams))
    worst = min(each.over_off("auto") for each in found if each.text == "drawn")
    rows = [each.row for each in found]
    if not any(each.drafted["on"] for each in found if each.text == "drawn"):
        rows.append(Row("drafts where text is drawn", failed="none was tried, so the ratio below shows nothing"))
    rows.append(at_least("auto / off where drafts are wrong", worst, LEAST_WHERE_WRONG, " ×"))
    return Report(rows, {f"{each.text}-{each.streams}": asdict(each) for each in found})


def measure(engines: Mapping[str, LLM], text: str, streams: int) -> Found:
    """Measure the modes in turns; the first turn warms up and is not counted."""
    rates: dict[str, list[float]] = {mode: [] for mode in MODES}
    before = {mode: _counts(llm) for mode, llm in engines.items()}
    for turn in range(ROUNDS + 1):
        for mode, llm in engines.items():
            rate = tokens_per_second(llm, streams, TEXTS[text])
            if turn:
                rates[mode].append(rate)
    spent = {
        mode: [now - then for now, then in zip(_counts(llm), before[mode], strict=True)]
        for mode, llm in engines.items()
    }
    return Found(
        text,
        streams,
        {mode: statistics.median(each) for mode, each in rates.items()},
        {mode: drafted for mode, (drafted, _) in spent.items()},
        {mode: accepted for mode, (_, accepted) in spent.items()},
    )


def tokens_per_second(llm: LLM, streams: int, params: SamplingParams) -> float:
    """Generated tokens per second of this process's processor time, in one run."""
    prompts = [[7 + stream, *range(20 + stream, 60 + stream)] for stream in range(streams)]
    begun = time.process_time()
    llm.generate(prompts, params, progress=False)
    return streams * TOKENS / (time.process_time() - begun)


def _counts(llm: LLM) -> tuple[int, int]:
    speculation = llm._engine.scheduler.speculation
    return speculation.drafted, speculation.accepted
