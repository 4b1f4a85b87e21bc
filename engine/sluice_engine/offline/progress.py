"""A progress bar on standard error during offline generation; silent unless requested."""

import sys
import time
from types import TracebackType
from typing import TYPE_CHECKING, Self

if TYPE_CHECKING:
    from rich.progress import Progress as Bar
    from rich.progress import TaskID


class Progress:
    """A context manager that shows the number of completed outputs out of `total` and the tokens per second.

    `visible` None: if standard error is a terminal.
    """

    def __init__(self, total: int, visible: bool | None) -> None:
        self._total = total
        self._visible = sys.stderr.isatty() if visible is None else visible
        self._bar: Bar | None = None
        self._task: TaskID | None = None
        self._begun = time.monotonic()

    def __enter__(self) -> Self:
        """Opens the bar."""
        if self._visible:
            from rich.console import Console
            from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeRemainingColumn
            from rich.progress import Progress as Bar

            self._bar = Bar(
                TextColumn("generating"),
                BarColumn(),
                MofNCompleteColumn(),
                TextColumn("{task.fields[rate]:,.0f} tokens/s"),
                TimeRemainingColumn(),
                console=Console(stderr=True),
            )
            self._task = self._bar.add_task("generating", total=self._total, rate=0.0)
            self._bar.start()
        return self

    def update(self, complete: int, tokens: int) -> None:
        """Set the number of completed outputs and of tokens. Cheap: the bar redraws itself ten times a second."""
        if self._bar is not None and self._task is not None:
            seconds = max(time.monotonic() - self._begun, 1e-9)
            self._bar.update(self._task, completed=complete, rate=tokens / seconds)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Stops the bar and leaves its last state on screen."""
        if self._bar is not None:
            self._bar.stop()
