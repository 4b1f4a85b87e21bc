"""`sluice simulate`: predicts the behaviour of a deployment under a trace, before it is deployed."""

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from sluice import contract


class Routing(StrEnum):
    """How the gateway chooses a replica."""

    round_robin = "round_robin"
    least_loaded = "least_loaded"
    prefix_aware = "prefix_aware"


class Mode(StrEnum):
    """Fidelity of the simulated engines."""

    exact = "exact"
    coarse = "coarse"


def register(app: typer.Typer) -> None:
    """Add the command to the app."""

    @app.command(name="simulate")
    def simulate_command(
        file: Annotated[
            Path | None, typer.Argument(help="YAML with one LLMDeployment, as for kubectl apply.", show_default=False)
        ] = None,
        spec: Annotated[
            str | None, typer.Option(help="Several such files under the same load, e.g. a.yaml,b.yaml: a row for each.")
        ] = None,
        trace: Annotated[
            str | None,
            typer.Option(
                help="CSV or JSONL with timestamp_ms, input_tokens, output_tokens; AIBrix, Azure, Mooncake, ServeGen "
                "rates, Vidur lengths, a record of sluice bench; Prometheus' range output; plain or .gz. Bundled: "
                "azure2023_conv, mooncake_conversation, servegen_m-large_rates_2d."
            ),
        ] = None,
        min_replicas: Annotated[
            int | None, typer.Option(min=0, help="Instead of the minReplicas of the spec.", show_default=False)
        ] = None,
        max_replicas: Annotated[
            int | None, typer.Option(min=1, help="Instead of the maxReplicas of the spec.", show_default=False)
        ] = None,
        lengths: Annotated[
            str | None, typer.Option(help="File or bundled name of the lengths that belong to ServeGen rates.")
        ] = None,
        rate: Annotated[
            float | None,
            typer.Option(
                min=0.001,
                max=10_000,
                help="Requests per second: without a trace, or for a trace without arrival times.",
            ),
        ] = None,
        prompt_tokens: Annotated[int, typer.Option(min=1, help="Prompt tokens of each request; with --rate.")] = 512,
        output_tokens: Annotated[
            int,
            typer.Option(min=1, help="Mean output tokens; with --rate, or for AIBrix requests without output length."),
        ] = 128,
        start: Annotated[float, typer.Option(min=0, help="Seconds of the trace to skip.")] = 0.0,
        seconds: Annotated[
            float | None, typer.Option(min=1, help="Seconds to simulate. [default: the whole trace, or 600]")
        ] = None,
        scale: Annotated[float, typer.Option(min=0.001, max=1000, help="Factor of the load.")] = 1.0,
        double: Annotated[bool, typer.Option("--double", help="Simulate twice the load: doubles --scale.")] = False,
        profile: Annotated[
            str | None,
            typer.Option(
                help="Step-time profile: a file of `sluice bench --profile-out`, a name, or terms as "
                "base=0.03,sequence=0.004,….  [default: llama31-8b-a100-tp2]"
            ),
        ] = None,
        kv_tokens: Annotated[
            int | None,
            typer.Option(min=16, help="Tokens that the KV cache of one replica holds. [default: the profile's]"),
        ] = None,
        cold_start: Annotated[float, typer.Option(min=0, help="Seconds from a decision to a ready replica.")] = 60.0,
        cold_start_spread: Annotated[
            float, typer.Option(min=0, max=1, help="Each cold start varies by up to this share, 0 to 1.")
        ] = 0.0,
        interval: Annotated[float, typer.Option(min=0.1, max=300, help="Seconds between two decisions.")] = 5.0,
        clock: Annotated[
            str | None,
            typer.Option(help="When the trace begins, e.g. 2026-03-02T08:00 (UTC), for spec.scaling.schedules."),
        ] = None,
        routing: Annotated[Routing, typer.Option(help="How the gateway chooses a replica.")] = Routing.round_robin,
        mode: Annotated[
            Mode, typer.Option(help="exact runs the real scheduler; coarse simulates days, within 5 % of exact.")
        ] = Mode.exact,
        pod_failures: Annotated[
            float, typer.Option(min=0, max=1, help="Share of pods that fail in their first hour, 0 to 1.")
        ] = 0.0,
        metrics_delay: Annotated[
            float, typer.Option(min=0, help="Age of metrics in seconds when the law sees them.")
        ] = 0.0,
        metrics_loss: Annotated[
            float, typer.Option(min=0, max=1, help="Share of scrapes that are lost, 0 to 1.")
        ] = 0.0,
        profile_error: Annotated[
            float, typer.Option(min=-0.9, max=10, help="True step time divided by the published one, minus 1.")
        ] = 0.0,
        compare: Annotated[
            str | None, typer.Option(help="Other laws at their defaults on the same load, e.g. hpa,kpa,llm-d.")
        ] = None,
        plot: Annotated[
            Path | None, typer.Option(help="Draw the run: PATH.png, PATH.svg, or both without an ending.")
        ] = None,
        as_json: Annotated[bool, typer.Option("--json", help="Print the result as one JSON object.")] = False,
        seed: Annotated[int, typer.Option(help="Seed of all random choices.")] = 0,
    ) -> None:
        """Replay a load in virtual time through the real scheduler and the real control law: how many GPUs are needed,
        is the SLO met, what if traffic doubles.

        A measured load: --trace FILE with the answer of Prometheus' query_range to

        {__name__=~"sluice_(requests_arrived|prompt_tokens|generated_tokens)_total"}

        and step=15. Add sluice_queue_seconds_count if requests were rejected: mean
        lengths are then those of scheduled requests. Rates of these counters need
        the label `load` (label_replace): requests, scheduled, prompt_tokens or
        output_tokens. Within a step, arrivals are Poisson at the measured rate and
        lengths geometric with the measured means, drawn by --seed.
        """
        from sluice_sim.cli.command import BadInput, SimulateOptions, run_simulate

        options = SimulateOptions(
            specs=tuple(Path(one) for one in _files(file, spec)),
            min_replicas=min_replicas,
            max_replicas=max_replicas,
            trace=trace,
            lengths=lengths,
            rate=rate,
            prompt_tokens=prompt_tokens,
            output_tokens=output_tokens,
            start=start,
            seconds=seconds,
            scale=2.0 * scale if double else scale,
            profile=profile,
            kv_tokens=kv_tokens,
            cold_start=cold_start,
            cold_start_spread=cold_start_spread,
            interval=interval,
            clock=clock,
            routing=routing.value,
            mode=mode.value,
            pod_failures=pod_failures,
            metrics_delay=metrics_delay,
            metrics_loss=metrics_loss,
            profile_error=profile_error,
            compare=compare,
            plot=plot,
            seed=seed,
        )
        try:
            run_simulate(options, as_json)
        except BadInput as error:
            for fault in error.faults:
                typer.echo(fault, err=True)
            raise typer.Exit(contract.EXIT_USAGE) from error


def _files(file: Path | None, spec: str | None) -> list[str]:
    """FILE and the files of --spec."""
    several = [name.strip() for name in (spec or "").split(",") if name.strip()]
    return several if file is None else [str(file), *several]
