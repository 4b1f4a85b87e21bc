"""`sluice bench`: runs a load against a server and reports latencies and failures as its users observe them."""

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from sluice import contract
from sluice.sentences import say

if TYPE_CHECKING:
    from sluice.bench import Load


def register(app: typer.Typer) -> None:
    """Add the command to the app."""
    app.command("bench")(bench)


def bench(
    url: Annotated[str, typer.Argument(help="The server's address, e.g. http://127.0.0.1:8000.", show_default=False)],
    rate: Annotated[
        float | None, typer.Option(help="Open loop: requests per second, Poisson.  [default: a closed loop]")
    ] = None,
    concurrency: Annotated[int | None, typer.Option(help="Closed loop: requests in flight.  [default: 8]")] = None,
    requests: Annotated[
        int | None, typer.Option(help="Number of requests to send.  [default: 100, or no bound with --duration]")
    ] = None,
    duration: Annotated[
        float | None, typer.Option(help="Seconds to send requests for.  [default: until all are sent]")
    ] = None,
    prompts: Annotated[
        Path | None, typer.Option(help='JSON lines {"prompt", "expect"?}.  [default: the corpus of the tiny model]')
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
    ttft_ms: Annotated[
        float | None, typer.Option(help="Time-to-first-token target, in milliseconds.  [default: none]")
    ] = None,
    itl_ms: Annotated[
        float | None,
        typer.Option(help="Target of a request's mean inter-token latency, in milliseconds.  [default: none]"),
    ] = None,
    api_key: Annotated[
        str | None,
        typer.Option(help="API key, sent as a bearer token.", envvar=["SLUICE_API_KEY", "OPENAI_API_KEY"]),
    ] = None,
    out: Annotated[Path | None, typer.Option(help="File for the report as JSON.")] = None,
    record: Annotated[Path | None, typer.Option(help="File for one JSON line per request, for `simulate`.")] = None,
    profile_out: Annotated[
        Path | None,
        typer.Option(
            help="Measure the step times of a `sluice serve` with a load of its own, and write them into this file "
            "for `sluice simulate --profile`."
        ),
    ] = None,
    admin_url: Annotated[
        str | None,
        typer.Option(help="Admin port of the engine, for --profile-out.  [default: the host of URL, port 8001]"),
    ] = None,
) -> None:
    """Send a load to a server with the official client's retries.

    Ctrl-C ends the load and reports the requests that finished.

    Exit codes: 0 no request failed, 1 some did, 2 bad input, 130 ended by Ctrl-C.
    """
    from sluice.bench import BenchError, Load
    from sluice.bench.prompts import corpus_prompts, read_prompts

    try:
        if profile_out is not None:
            _refuse(rate=rate, concurrency=concurrency, requests=requests, duration=duration, prompts=prompts, out=out,
                    record=record)  # fmt: skip
        load = Load(
            url=url,
            prompts=read_prompts(prompts) if prompts is not None else corpus_prompts(check=check),
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
        say(str(wrong), err=True)
        raise typer.Exit(contract.EXIT_USAGE) from wrong
    try:
        raise typer.Exit(
            _measure(load, admin_url, profile_out) if profile_out is not None else _report(load, out, record)
        )
    except (BenchError, OSError) as failure:
        say(str(failure), err=True)
        raise typer.Exit(contract.EXIT_FAILED) from failure


def _refuse(**given: object) -> None:
    """Refuse the options of a load beside --profile-out. Raises BenchError."""
    from sluice.bench import BenchError

    names = [f"--{name}" for name, value in given.items() if value is not None]
    if names:
        raise BenchError(f"--profile-out sends a load of its own: leave out {', '.join(names)}.")


def _report(load: "Load", out: Path | None, record: Path | None) -> int:
    """Run the load and show its report. Raises BenchError, OSError."""
    from sluice.bench.terminal import run_shown, show

    report, interrupted = run_shown(load, record)
    if out is not None:
        out.write_text(json.dumps(report.to_dict(), indent=2) + "\n")
    show(report)
    if interrupted:
        return contract.EXIT_INTERRUPTED
    return contract.EXIT_OK if report.ok else contract.EXIT_FAILED


def _measure(load: "Load", admin_url: str | None, file: Path) -> int:
    """Measure a profile and write it. Raises BenchError, OSError."""
    import asyncio
    from datetime import UTC, datetime

    from sluice.bench.engine_profile import default_admin_url, lines, measure

    admin = admin_url or default_admin_url(load.base_url)
    today = f"{datetime.now(UTC):%Y-%m-%d}"
    try:
        profile = asyncio.run(measure(load, admin, today, lambda sentence: say(sentence, err=True)))
    except KeyboardInterrupt:
        say("Ended by Ctrl-C: no profile is written.", err=True)
        return contract.EXIT_INTERRUPTED
    file.write_text(profile.to_json())
    for line in lines(profile, str(file)):
        say(line)
    return contract.EXIT_OK
