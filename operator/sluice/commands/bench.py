"""`sluice bench`: runs a load against a server and reports latencies and failures as its users observe them."""

import asyncio
import contextlib
import json
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from sluice import contract

if TYPE_CHECKING:
    from sluice.bench import Load, Prompt, Report, Result


def register(app: typer.Typer) -> None:
    """Add the command to the app."""
    app.command("bench")(bench)


def bench(
    url: Annotated[str, typer.Argument(help="The server's address, e.g. http://127.0.0.1:8000.")],
    rate: Annotated[float | None, typer.Option(help="Open loop: requests per second, Poisson.")] = None,
    concurrency: Annotated[int | None, typer.Option(help="Closed loop: requests in flight.  [default: 8]")] = None,
    requests: Annotated[int | None, typer.Option(help="Number of requests to send.  [default: 100]")] = None,
    duration: Annotated[float | None, typer.Option(help="Seconds to send requests for.")] = None,
    prompts: Annotated[
        Path | None, typer.Option(help='JSON lines {"prompt", "expect"?}; without it, the corpus of the tiny model.')
    ] = None,
    check: Annotated[
        bool, typer.Option(help="With the corpus: compare each output with the tiny model's reference output.")
    ] = False,
    model: Annotated[
        str | None, typer.Option(help="Model name.  [default: the first one that the server lists]")
    ] = None,
    max_tokens: Annotated[int, typer.Option(help="Maximum number of output tokens.")] = 128,
    temperature: Annotated[float, typer.Option(help="Sampling temperature; 0 is greedy.")] = 0.0,
    ignore_eos: Annotated[bool, typer.Option(help="Generate max-tokens tokens for each request.")] = False,
    seed: Annotated[int, typer.Option(help="Seed of the arrivals and of the order of prompts.")] = 0,
    retries: Annotated[int, typer.Option(help="Retries per request; the official client's default.")] = 2,
    keep_alive: Annotated[bool, typer.Option(help="Reuse connections.")] = True,
    timeout: Annotated[float, typer.Option(help="Timeout of one attempt, in seconds.")] = 600.0,
    ttft_ms: Annotated[float | None, typer.Option(help="Time-to-first-token target, in milliseconds.")] = None,
    itl_ms: Annotated[
        float | None, typer.Option(help="Target of a request's mean inter-token latency, in milliseconds.")
    ] = None,
    api_key: Annotated[str | None, typer.Option(envvar="SLUICE_API_KEY", help="Bearer token.")] = None,
    out: Annotated[Path | None, typer.Option(help="File for the report as JSON.")] = None,
    record: Annotated[Path | None, typer.Option(help="File for one JSON line per request, for `simulate`.")] = None,
) -> None:
    """Send a load to a server with the official client's retries. The exit code is 0 only if no request failed."""
    from sluice.bench import BenchError, Load

    try:
        load = Load(
            url=url,
            prompts=_read(prompts) if prompts is not None else _corpus(check=check),
            model=model,
            rate=rate,
            concurrency=8 if rate is None and concurrency is None else concurrency,
            requests=100 if requests is None and duration is None else requests,
            duration=duration,
            max_tokens=max_tokens,
            temperature=temperature,
            ignore_eos=ignore_eos,
            seed=seed,
            retries=retries,
            keep_alive=keep_alive,
            timeout=timeout,
            ttft_target=None if ttft_ms is None else ttft_ms / 1000,
            itl_target=None if itl_ms is None else itl_ms / 1000,
            api_key=api_key,
        )
    except BenchError as wrong:
        typer.echo(str(wrong), err=True)
        raise typer.Exit(contract.EXIT_USAGE) from wrong
    try:
        report = _run(load, record)
        if out is not None:
            out.write_text(json.dumps(report.to_dict(), indent=2) + "\n")
    except (BenchError, OSError) as failure:
        typer.echo(str(failure), err=True)
        raise typer.Exit(contract.EXIT_FAILED) from failure
    _show(report)
    if not report.ok:
        raise typer.Exit(contract.EXIT_FAILED)


def _corpus(*, check: bool) -> "tuple[Prompt, ...]":
    from sluice.bench import BenchError, Prompt

    try:
        from sluice_engine.tiny import corpus
    except ModuleNotFoundError as missing:
        raise BenchError(
            "The corpus comes with the engine, which is not installed here: give --prompts FILE."
        ) from missing
    return tuple(Prompt(pair.question, pair.answer if check else None) for pair in corpus.load())


def _read(path: Path) -> "tuple[Prompt, ...]":
    from sluice.bench import BenchError, Prompt

    found = []
    try:
        lines = path.read_text().splitlines()
    except (OSError, UnicodeDecodeError) as failure:
        raise BenchError(f"{path} cannot be read: {failure}.") from failure
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        try:
            item = json.loads(line)
            text, expect = item["prompt"], item.get("expect")
        except (ValueError, KeyError, TypeError, AttributeError) as wrong:
            raise BenchError(f'{path}:{number} is not a JSON object with a "prompt".') from wrong
        if not isinstance(text, str) or not isinstance(expect, str | None):
            raise BenchError(f'{path}:{number}: "prompt" and "expect" must be strings.')
        found.append(Prompt(text, expect))
    return tuple(found)


def _run(load: "Load", record: Path | None) -> "Report":
    from sluice.bench import run

    with contextlib.ExitStack() as stack:
        advance = stack.enter_context(_progress(load))
        file = stack.enter_context(record.open("w")) if record is not None else None

        def on_result(result: "Result") -> None:
            advance(result)
            if file is not None:
                file.write(json.dumps(result.record()) + "\n")

        return asyncio.run(run(load, on_result))


@contextlib.contextmanager
def _progress(load: "Load") -> "Iterator[Callable[[Result], None]]":
    """A progress bar on a terminal, nothing otherwise."""
    if not sys.stderr.isatty():
        yield lambda _: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    columns = (
        TextColumn("[bold cyan]asking"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("{task.fields[failed]} failed"),
        TimeElapsedColumn(),
    )
    with Progress(*columns, console=Console(stderr=True)) as bar:
        task = bar.add_task("asking", total=load.requests, failed=0)
        failed = 0

        def advance(result: "Result") -> None:
            nonlocal failed
            failed += result.failure is not None
            bar.update(task, advance=1, failed=failed)

        yield advance


def _show(report: "Report") -> None:
    """A table on a terminal, one JSON line otherwise."""
    if not sys.stdout.isatty():
        typer.echo(json.dumps(report.to_dict()))
        return
    from rich.console import Console

    from sluice.bench.show import table

    Console().print(table(report))
