"""`sluice simulate`: what a deployment would do under a trace, before it is deployed."""

from pathlib import Path
from typing import Annotated

import typer

from sluice import contract


def register(app: typer.Typer) -> None:
    """Add the command to the app."""

    @app.command(name="simulate")
    def simulate_command(
        file: Annotated[Path, typer.Argument(help="YAML with one LLMDeployment, as for kubectl apply.")],
        trace: Annotated[
            Path | None, typer.Option(help="CSV with TIMESTAMP,ContextTokens,GeneratedTokens; plain or .gz.")
        ] = None,
        rate: Annotated[
            float | None, typer.Option(min=0.001, max=10_000, help="Instead of a trace: requests per second.")
        ] = None,
        prompt_tokens: Annotated[int, typer.Option(min=1, help="With --rate: tokens of each prompt.")] = 512,
        output_tokens: Annotated[int, typer.Option(min=1, help="With --rate: mean tokens of an answer.")] = 128,
        seconds: Annotated[
            float | None, typer.Option(min=1, help="How much of the trace, or how long. [default: all of it, or 600]")
        ] = None,
        profile: Annotated[
            str | None, typer.Option(help="Step time as base=0.03,sequence=0.004,… [default: 8B on two A100]")
        ] = None,
        kv_tokens: Annotated[
            int | None, typer.Option(min=16, help="Tokens one replica's KV cache holds. [default: 900000]")
        ] = None,
        cold_start: Annotated[float, typer.Option(min=0, help="Seconds from a decision to a ready replica.")] = 60.0,
        interval: Annotated[float, typer.Option(min=0.1, max=300, help="Seconds between two decisions.")] = 5.0,
        seed: Annotated[int, typer.Option(help="With --rate: seed of the arrivals.")] = 0,
    ) -> None:
        """Replay a load in virtual time through the real scheduler and the real control law, and print what happens."""
        from sluice_sim.command import BadInput, Question, answer

        question = Question(
            file=file,
            trace=trace,
            rate=rate,
            prompt_tokens=prompt_tokens,
            output_tokens=output_tokens,
            seconds=seconds,
            profile=profile,
            kv_tokens=kv_tokens,
            cold_start=cold_start,
            interval=interval,
            seed=seed,
        )
        try:
            answer(question)
        except BadInput as error:
            for fault in error.faults:
                typer.echo(fault, err=True)
            raise typer.Exit(contract.EXIT_USAGE) from error
