"""Speculation off, on and auto, interleaved in one process: `python -m tests.bench.speculation MODEL`.

The two ends: a text that repeats one token (forced by a bias, so every draft is right) and one that is drawn at
temperature 1 (drafts are nearly always wrong). One stream, and 16 at a time. Tokens per second of processor
time with one computing thread: other work on the machine moves that least.
"""

import statistics
import sys
import time

from sluice_engine import LLM, SamplingParams
from tests.bench.processor import describe

MODES = ("off", "on", "auto")
ROUNDS = 3
TOKENS = 96
TEXTS = {
    "repeats": SamplingParams(max_tokens=TOKENS, temperature=0.0, ignore_eos=True, logit_bias={7: 100.0}),
    "drawn": SamplingParams(max_tokens=TOKENS, temperature=1.0, seed=5, ignore_eos=True),
}


def tokens_per_second(llm: LLM, streams: int, params: SamplingParams) -> float:
    """Generated tokens per second of this process's processor time, in one run."""
    prompts = [[7 + stream, *range(20 + stream, 60 + stream)] for stream in range(streams)]
    begun = time.process_time()
    llm.generate(prompts, params, progress=False)
    return streams * TOKENS / (time.process_time() - begun)


def main(folder: str) -> None:
    """A line per kind of text and number of streams: medians, ratios to off, and what was drafted and accepted."""
    engines = {mode: LLM(folder, threads=1, kv_size=256 << 20, speculation=mode) for mode in MODES}
    sys.stdout.write(f"{describe()}, one thread, {folder}\n")
    for name, params in TEXTS.items():
        for streams in (1, 16):
            found: dict[str, list[float]] = {mode: [] for mode in MODES}
            before = {mode: _counts(llm) for mode, llm in engines.items()}
            for turn in range(ROUNDS + 1):  # the first one warms shapes and is left out
                for mode, llm in engines.items():
                    rate = tokens_per_second(llm, streams, params)
                    if turn:
                        found[mode].append(rate)
            middle = {mode: statistics.median(rates) for mode, rates in found.items()}
            for mode, llm in engines.items():
                drafted, accepted = (now - then for now, then in zip(_counts(llm), before[mode], strict=True))
                sys.stdout.write(
                    f"{name:8} {streams:3} {mode:4} {middle[mode]:8.0f} tokens/s {middle[mode] / middle['off']:5.2f}"
                    f"  drafted {drafted}, accepted {accepted}\n"
                )
            sys.stdout.flush()


def _counts(llm: LLM) -> tuple[int, int]:
    speculation = llm._engine.scheduler.speculation
    return speculation.drafted, speculation.accepted


if __name__ == "__main__":
    main(sys.argv[1])
