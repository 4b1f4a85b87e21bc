"""`sluice top`: a live table of the deployments of a namespace."""

import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Annotated

import typer

from sluice.commands.cluster.access import (
    AllNamespaces,
    Format,
    Namespace,
    Output,
    chosen_namespace,
    json_text,
    width,
    with_cluster,
)
from sluice.sentences import escaped

if TYPE_CHECKING:
    from sluice.cluster.reader import Reader
    from sluice.cluster.top.rows import Row
    from sluice.cluster.top.watch import Show


def top(
    namespace: Namespace = None,
    all_namespaces: AllNamespaces = False,
    once: Annotated[bool, typer.Option("--once", help="Print one table, of two passes an interval apart.")] = False,
    interval: Annotated[float, typer.Option(min=0.5, max=3600, help="Seconds between two passes.")] = 5.0,
    output: Output = Format.TEXT,
) -> None:
    """Show replicas, requests, KV cache occupancy, latency and output tokens per second until Ctrl-C.

    Each pass reads the metrics of every ready pod through the API server. That needs the right to get pods/proxy, with
    metrics.auth token of the chart also secrets, and, where NetworkPolicies are enforced, the API server's addresses in
    networkPolicy.metricsFrom.
    """
    where = chosen_namespace("top", namespace, every=all_namespaces)
    live = output is Format.TEXT and not once and sys.stdout.isatty()
    with suppress(KeyboardInterrupt), _screen(live) as write:
        show = _show(write, output, namespaces=all_namespaces)

        async def run(reader: "Reader") -> None:
            from sluice.cluster.top import watch
            from sluice.cluster.top.scrape import scrape

            await watch.watch(
                lambda: scrape(reader, where, time.monotonic), show, lambda: watch.pause(interval), once=once
            )

        with_cluster("top", run)


def _show(write: Callable[[str], None], output: Format, *, namespaces: bool) -> "Show":
    """Returns what writes the rows of a pass: a table, or one line of JSON."""

    def show(rows: "Sequence[Row]", faults: Sequence[str]) -> None:
        from sluice.cluster.top.rows import as_json, top_lines

        if output is Format.JSON:
            write(json_text(as_json(rows, faults)))
        else:
            write(escaped("\n".join(top_lines(rows, faults, width(), namespaces=namespaces))))

    return show


@contextmanager
def _screen(live: bool) -> Iterator[Callable[[str], None]]:
    """A function that writes a text: in place of the last one on a terminal, else below it."""
    if not live:
        yield typer.echo
        return
    from rich.live import Live
    from rich.text import Text

    with Live(auto_refresh=False, vertical_overflow="crop") as display:
        yield lambda text: display.update(Text(text, no_wrap=True), refresh=True)
