"""SmolLM2-135M over HTTP beside vLLM's CPU build, by vLLM's own load tool: `python -m tests.bench serving`.

Two loads of random tokens, fresh in each round: requests of 128 + 128 tokens, 32 at once, and one prompt of 6,500
tokens. All servers stay loaded and take turns; the medians of the rounds are compared.
"""

import asyncio
import json
import statistics
import subprocess
import tempfile
from collections.abc import Callable, Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final

from sluice_engine.pulled import pull
from tests.bench.processes.process_group import last_words
from tests.bench.report import processor
from tests.bench.report.row import Report, Row, at_least, at_most
from tests.bench.serving.server import Server, started
from tests.bench.serving.sides import NAME, OURS, PEERS, Side
from tests.bench.throughput.measure import BFLOAT16_FLAGS
from tests.bench.throughput.sides import vllm_python

LEAST_SPEED: Final = 1.2  # times the faster vLLM's tokens/s
MOST_TTFT: Final = 1.0  # times the lower p50 of the two
MOST_LONG: Final = 1.0  # the same, one long prompt
ROUNDS: Final = 3
LOAD_TOOL: Final = Path(__file__).with_name("random_load.py")
LOAD_SECONDS: Final = 1800.0
Say = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Load:
    """`requests` of random tokens, `at_once` at a time."""

    prompt_tokens: int
    output_tokens: int
    requests: int
    at_once: int


SHORT: Final = Load(128, 128, 96, 32)
LONG: Final = Load(6500, 1, 1, 1)
WARM_UP: Final = Load(128, 16, 16, 16)


@dataclass(frozen=True, slots=True)
class Found:
    """Result of one load: output tokens per second, and the median time to the first token in seconds."""

    rate: float
    ttft: float


class LoadFailed(Exception):
    """The load tool failed, or not every request was answered; the message has the reason."""


def report(out: Path, say: Say) -> Report:
    """Rows of each side and the bars against the better vLLM. Raises PeerUnavailable, ServerFailed and LoadFailed."""
    say("SmolLM2-135M-Instruct and vLLM")
    model, python = pull(NAME), vllm_python()
    dtype = "bfloat16" if BFLOAT16_FLAGS & set(processor.describe().flags) else "float32"
    found = asyncio.run(_found(model, dtype, python, out, say))
    data = {name: [[asdict(each) for each in results] for results in loads] for name, loads in found.items()}
    return Report(rows(found), {"dtype": dtype, "short": asdict(SHORT), "long": asdict(LONG), "sides": data})


async def _found(
    model: Path, dtype: str, python: str, out: Path, say: Say
) -> dict[str, tuple[list[Found], list[Found]]]:
    sides = (OURS, *PEERS)
    found: dict[str, tuple[list[Found], list[Found]]] = {side.name: ([], []) for side in sides}
    async with AsyncExitStack() as stack:
        servers: list[tuple[Side, Server]] = []
        for side in sides:
            say(f"starting and warming {side.title}")
            command, log = side.command(model, dtype, SHORT.at_once), out / f"bench-serving-{side.name}.log"
            server = await stack.enter_async_context(started(command, log))
            await measure(server, WARM_UP, 0, model, python)
            servers.append((side, server))
        for turn in range(1, ROUNDS + 1):
            for side, server in servers:
                say(f"round {turn} of {ROUNDS}: {side.title}")
                for number, (load, results) in enumerate(zip((SHORT, LONG), found[side.name], strict=True)):
                    seed = 2 * turn + number  # of its own: prompts of one seed begin alike
                    results.append(await measure(server, load, seed, model, python))
    return found


async def measure(server: Server, load: Load, seed: int, model: Path, python: str) -> Found:
    """One run of the load tool. Raises LoadFailed."""
    with tempfile.TemporaryDirectory() as scratch, server.running():
        command = [python, str(LOAD_TOOL), "--backend", "openai", "--base-url", f"http://127.0.0.1:{server.port}"]
        command += ["--model", NAME, "--tokenizer", str(model), "--dataset-name", "random", "--seed", str(seed)]
        command += ["--random-input-len", str(load.prompt_tokens), "--random-output-len", str(load.output_tokens)]
        command += ["--num-prompts", str(load.requests), "--max-concurrency", str(load.at_once), "--ignore-eos"]
        command += ["--disable-tqdm", "--save-result", "--result-dir", scratch, "--result-filename", "found.json"]
        log = Path(scratch) / "log"
        with log.open("w") as file:
            tool = await asyncio.create_subprocess_exec(*command, stdout=file, stderr=subprocess.STDOUT)
        try:
            await asyncio.wait_for(tool.wait(), LOAD_SECONDS)
        except TimeoutError as error:
            tool.kill()
            await tool.wait()
            raise LoadFailed(f"the load tool did not end within {LOAD_SECONDS:g} s") from error
        if tool.returncode:
            raise LoadFailed(f"the load tool failed: {last_words(log)}")
        said = json.loads((Path(scratch) / "found.json").read_text())
    if said["completed"] != load.requests or said["total_output_tokens"] != load.requests * load.output_tokens:
        raise LoadFailed(f"{said['completed']} of {load.requests} requests, {said['total_output_tokens']} tokens")
    return Found(said["output_throughput"], said["median_ttft_ms"] / 1e3)


def rows(found: Mapping[str, tuple[Sequence[Found], Sequence[Found]]]) -> list[Row]:
    """A row for each side, and the three bars."""
    made: list[Row] = []
    rate, ttft, long = ({} for _ in range(3))
    for side in (OURS, *PEERS):
        short_runs, long_runs = found[side.name]
        rate[side.name] = statistics.median(each.rate for each in short_runs)
        ttft[side.name] = statistics.median(each.ttft for each in short_runs)
        long[side.name] = statistics.median(each.ttft for each in long_runs)
        each_round = ", ".join(f"{each.rate:.0f}" for each in short_runs)
        value = f"{rate[side.name]:.0f} tokens/s ({each_round}), TTFT p50 {ttft[side.name]:.2f} s"
        made.append(Row(side.title, f"{value}; a long prompt {long[side.name]:.1f} s"))
    peers = [side.name for side in PEERS]
    over = {
        what: values[OURS.name] / min(values[name] for name in peers)
        for what, values in {"short": ttft, "long": long}.items()
    }
    return [
        *made,
        at_least(
            "tokens/s over the faster vLLM", rate[OURS.name] / max(rate[name] for name in peers), LEAST_SPEED, " ×"
        ),
        at_most("TTFT p50 over the lower of vLLM's", over["short"], MOST_TTFT, " ×"),
        at_most(
            f"TTFT of a prompt of {LONG.prompt_tokens:,} tokens over the lower of vLLM's", over["long"], MOST_LONG, " ×"
        ),
    ]
