"""The common style of the benchmark's plots: one size, the processor's name in the title, no display needed."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.bench.report import processor

OURS, PEER, DOT, TARGET = "#1f6f8b", "#b8c4cc", "#222222", "#c0392b"
INCHES, DPI = (9.0, 4.5), 110


@contextmanager
def drawing(title: str, to: Path, rows: int = 1, *, on_processor: bool = True) -> Iterator[Any]:
    """Axes to draw on (an array for several rows), saved to `to` as PNG at the end.

    `on_processor=False` is for results in virtual time, which do not depend on the processor.
    """
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    drawn = Figure(figsize=(INCHES[0], INCHES[1] * (0.5 + 0.5 * rows)), layout="constrained")
    canvas = FigureCanvasAgg(drawn)
    axes: Any = drawn.subplots(rows, 1, sharex=rows > 1, sharey=rows > 1)
    where = processor.describe()
    said = (
        f"{where.name} ({', '.join(where.flags)}), {where.cores} cores"
        if on_processor
        else "the scheduler in virtual time: the same on each machine"
    )
    drawn.suptitle(f"{title}\n{said}", fontsize=10)
    yield axes
    for each in axes if rows > 1 else [axes]:
        each.grid(axis="y", alpha=0.3)
        each.spines[["top", "right"]].set_visible(False)
        each.tick_params(labelsize=8)
    to.parent.mkdir(parents=True, exist_ok=True)
    canvas.print_png(to)  # type: ignore[no-untyped-call]
    drawn.clear()
