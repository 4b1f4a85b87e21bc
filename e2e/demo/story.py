"""The demo's scenario: a model is queried, measured, loaded, overloaded and idle.

Each phase ends by itself or fails by name.
"""

import asyncio
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from openai import AsyncOpenAI
from rich.console import Console

from e2e.demo import checks, real_model, wanted
from e2e.demo.checks import Check
from e2e.demo.fleet import DemoFailed, Fleet, Line
from e2e.demo.processor import Share, watch_shares
from e2e.demo.replica import Service, mean_work, one_replica, read_sample
from sluice.bench import Load, Prompt, Report, run
from sluice_engine.tiny import corpus
from sluice_perfmodel.slo_limits import Targets

QUESTIONS: Final = ("What is the KV cache?", "What is continuous batching?", "What is a token?")
MEASURING_USERS: Final = 4  # together with the single questions before, the engine's fit has two batch sizes
HALF, OVER = 0.5, 1.5  # of what one replica serves: in time by one replica, and late by one but not by two
SECONDS_HALF, SECONDS_BOTH = 20.0, 17.0  # under half a load; under the full load with two replicas
SECONDS_GROWN: Final = 8.0  # under the full load after all desired replicas are ready
MOST_SECONDS: Final = 150.0  # longest wait within one phase
LOAD_MOST_SECONDS: Final = 2 * MOST_SECONDS + SECONDS_BOTH + SECONDS_GROWN


@dataclass(slots=True)
class Record:
    """The results of the demo."""

    checks: list[Check] = field(default_factory=list)
    reports: dict[str, Report] = field(default_factory=dict)
    shares: dict[str, Share] = field(default_factory=dict)
    fetch_fault: str | None = None  # of the real model; None: it was not asked for


class Story:
    """The phases, in order."""

    def __init__(self, fleet: Fleet, console: Console, record: Record) -> None:
        self._fleet = fleet
        self._say = console
        self._record = record
        self._url = ""
        pairs = corpus.load()
        self._answers = {pair.question: pair.answer for pair in pairs}
        self._prompts = tuple(Prompt(pair.question, pair.answer) for pair in pairs)

    async def play(self) -> None:
        """Run all phases. Raises DemoFailed."""
        self._url = await self._fleet.url()
        first = await self._fleet.until_state(
            lambda line: line["ready"] == 1, "the first replica's start", MOST_SECONDS
        )
        watcher = asyncio.create_task(watch_shares(self._fleet, self._record.shares))
        try:
            self._say.print(f"\nReady at {self._url}/v1\n")
            await self._ask()
            served = await self._measure(first)
            calm_from = await self._half_load(served)
            await self._overload(served, calm_from)
            fetching = asyncio.create_task(real_model.pull())
            await self._shrink()
            self._record.fetch_fault = await fetching
        finally:
            watcher.cancel()
            await asyncio.gather(watcher, return_exceptions=True)

    async def _ask(self) -> None:
        self._say.rule("Three questions, by the openai client")
        right = 0
        async with AsyncOpenAI(base_url=f"{self._url}/v1", api_key="none") as client:
            for question in QUESTIONS:
                self._say.print(f"[bold]> {question}[/bold]")
                answer = ""
                stream = await client.chat.completions.create(
                    model=wanted.NAME,
                    messages=[{"role": "user", "content": question}],
                    temperature=0,
                    max_tokens=128,
                    stream=True,
                )
                async for chunk in stream:
                    piece = chunk.choices[0].delta.content or "" if chunk.choices else ""
                    answer += piece
                    self._say.print(piece, end="", markup=False, highlight=False)
                self._say.print("\n")
                right += answer.strip() == self._answers.get(question, answer).strip() and bool(answer.strip())
        self._record.checks.append(
            Check("three questions are answered in clear sentences", right == len(QUESTIONS), f"{right} answers")
        )

    async def _measure(self, first: Line) -> Service:
        """Send a little traffic, so that the engine fits its step-time model, and compute from it what it serves."""
        self._say.rule("What one replica serves, by its own measurements")
        admin = first["pods"][0]["admin"]
        before = await read_sample(admin)
        await self._load("measuring", Load(
            url=self._url, prompts=self._prompts, concurrency=MEASURING_USERS, requests=6 * MEASURING_USERS, seed=1
        ))  # fmt: skip
        sample = await read_sample(admin)
        work = mean_work(before, sample)
        targets = Targets(ttft=wanted.TTFT_MS / 1000, itl=wanted.ITL_MS / 1000)
        served = one_replica(sample, work, targets)
        if served is None or sample.step_model is None:
            raise DemoFailed("the engine has published no step model")
        model = sample.step_model
        self._say.print(
            f"A step takes {model.base * 1e3:.1f} ms + {model.sequence * 1e3:.2f} ms per sequence + "
            f"{model.prefill_token * 1e3:.3f} ms per prompt token, fitted over {model.steps} steps "
            f"(off by {model.error_ratio:.1%}).\n"
            f"A request is {work.uncached:.0f} new prompt tokens and {work.output:.0f} answer tokens. So one replica "
            f"serves {served.rate:.2f} requests/s, {served.concurrency} at once.\n"
        )
        return served

    async def _half_load(self, served: Service) -> float:
        """Run half the load; returns its start time."""
        rate = HALF * served.rate
        self._say.rule(f"Half of that: {rate:.2f} requests/s for {SECONDS_HALF:g} s")
        start = time.monotonic()
        await self._load("half", self._open_loop(rate, SECONDS_HALF, seed=2))
        self._record.checks.append(checks.stayed_at_one(self._fleet.timeline.between(start, time.monotonic())))
        return start

    async def _overload(self, served: Service, calm_from: float) -> None:
        rate = OVER * served.rate
        self._say.rule(f"{OVER:g} times that: {rate:.2f} requests/s until a second replica has shared it")
        timeline = self._fleet.timeline
        before, pod = timeline.states[-1].line, timeline.states[-1].line["pods"][0]["name"]
        start, stop = time.monotonic(), asyncio.Event()
        load = asyncio.create_task(self._load("full", self._open_loop(rate, LOAD_MOST_SECONDS, seed=3), stop))
        ready_two: float | None = None
        try:
            await self._fleet.until_state(lambda line: line["ready"] >= 2, "a second ready replica", MOST_SECONDS)
            ready_two = time.monotonic()
            self._say.print(f"[green]A second replica is ready after {ready_two - start:.0f} s.[/green]")
            await asyncio.sleep(SECONDS_BOTH)
            await self._fleet.until_state(checks.is_grown, "the end of the growth", MOST_SECONDS)
            await asyncio.sleep(SECONDS_GROWN)
        except DemoFailed as failure:
            self._say.print(f"[red]{failure}[/red]")
        stop.set()
        await load
        end = time.monotonic()
        most = max((seen.line["ready"] for seen in timeline.between(start, end)), default=0)
        self._record.checks.append(checks.scaled_up(before, ready_two, most))
        shared = ready_two or end
        grown = [seen for seen in timeline.between(shared, end) if checks.is_grown(seen.line)]
        limits, last = checks.dial_of(timeline.states, pod, "limit"), checks.dial_of(grown, pod, "limit")
        self._record.checks.extend(checks.fell_and_rose(checks.course(limits, calm_from, start, shared, last)))
        self._record.checks.append(checks.queue_follows(timeline.between(calm_from, end), wanted.MOST_CONCURRENCY))

    async def _shrink(self) -> None:
        self._say.rule("No load: back to one replica, once the burst is forgotten")
        try:
            await self._fleet.until_state(
                lambda line: line["replicas"] == 1 and len(line["pods"]) == 1,
                "the scale-down to one replica",
                MOST_SECONDS,
            )
            passed, told = True, "1 replica, none draining"
        except DemoFailed as failure:
            passed, told = False, str(failure)
        self._record.checks.append(Check("without load replicas go back to 1", passed, told))

    def _open_loop(self, rate: float, seconds: float, seed: int) -> Load:
        return Load(
            url=self._url,
            prompts=self._prompts,
            rate=rate,
            duration=seconds,
            seed=seed,
            ttft_target=wanted.TTFT_MS / 1000,
            itl_target=wanted.ITL_MS / 1000,
        )

    async def _load(self, name: str, load: Load, stop: asyncio.Event | None = None) -> None:
        ticker = asyncio.create_task(self._tick())
        try:
            self._record.reports[name] = await run(load, stop=stop)
        finally:
            ticker.cancel()

    async def _tick(self) -> None:
        """Print a line every few seconds, and each replica decision."""
        told = len(self._fleet.timeline.decisions("replicas"))
        while True:
            await asyncio.sleep(3)
            line = self._fleet.timeline.states[-1].line
            shown = {name: "–" if line[name] is None else line[name] for name in ("kv_percent", "ttft_ms", "itl_ms")}
            pods = ", ".join(f"{pod['limit'] or '–'}/{pod['queue'] or '–'}" for pod in line["pods"])
            self._say.print(
                f"[dim]ready {line['ready']}/{line['desired']}  running {line['running']:>3}  "
                f"waiting {line['waiting']:>3}  KV {shown['kv_percent']} %  TTFT {shown['ttft_ms']} ms  "
                f"ITL {shown['itl_ms']} ms  limit/queue {pods}[/dim]"
            )
            for made in self._fleet.timeline.decisions("replicas")[told:]:
                told += 1
                self._say.print(f"[yellow]{made['message']}[/yellow]")


def write_resource(folder: Path, model: Path) -> Path:
    """Write the demo's YAML to a file."""
    file = folder / "chat.yaml"
    file.write_text(wanted.text(model))
    return file
