"""Bounds the processor time of a chat template: every iteration of a loop and every call of a macro is counted.

A template has no other way to run long: an expression works on at most what a request or `range` may hold. The checks are
compiled into the template, so that one with nested loops and no output ends too, and its thread with it.
"""

import time
from collections.abc import Callable
from typing import Any, Final, TypeVar

from jinja2 import pass_context
from jinja2.nodes import And, Const, Expr, ExprStmt, Filter, For, Macro, Template
from jinja2.runtime import Context
from jinja2.sandbox import ImmutableSandboxedEnvironment

RENDER_SECONDS: Final = 1.0  # of processor time: thousands of messages need a tenth of it
INLINE_SECONDS: Final = 0.02  # on the event loop, which other requests need too
STRIDE: Final = 16  # iterations between two looks at the clock
# No identifiers, so that no template can name or replace them.
_VARIABLE: Final = "time budget"
_FILTER: Final = "within time budget"
Value = TypeVar("Value")


class TemplateFailed(Exception):
    """The template rejected these messages or failed on them; the message states which."""


class TemplateSlow(TemplateFailed):
    """The template exceeds its time."""


class TimeBudget:
    """The processor time of one rendering, on one thread."""

    def __init__(self, seconds: float, clock: Callable[[], float] = time.thread_time) -> None:
        self._seconds, self._clock = seconds, clock
        self._until = clock() + seconds
        self._count = 0

    def spend(self) -> None:
        """Counts one iteration. Raises TemplateSlow."""
        self._count += 1
        if self._count % STRIDE == 0 and self._clock() > self._until:
            raise TemplateSlow(
                f"the chat template takes longer than {self._seconds:g} s of processor time for these messages; send fewer "
                "or shorter ones, or give the model a simpler chat_template"
            )

    def variables(self) -> dict[str, Any]:
        """The variable of a rendering that holds the budget."""
        return {_VARIABLE: self}


class BoundedEnvironment(ImmutableSandboxedEnvironment):
    """A sandbox whose templates spend the time budget that they are rendered with."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self.filters[_FILTER] = _within

    def _parse(self, source: str, name: str | None, filename: str | None) -> Template:
        template = super()._parse(source, name, filename)
        for loop in template.find_all(For):
            if loop.test is not None:  # an entry that it rejects does not reach the body
                loop.test = And(self._spent(loop.lineno), loop.test, lineno=loop.lineno).set_environment(self)
        blocks: list[For | Macro] = [*template.find_all(For), *template.find_all(Macro)]
        for block in blocks:
            block.body.insert(0, ExprStmt(self._spent(block.lineno), lineno=block.lineno).set_environment(self))
        return template

    def _spent(self, line: int) -> Expr:
        """An expression that is true and spends time."""
        true = Const(True, lineno=line)
        spent = Filter(true, _FILTER, [], [], None, None, lineno=line)
        spent.set_environment(self)
        return spent


@pass_context
def _within(context: Context, value: Value) -> Value:
    budget: TimeBudget = context[_VARIABLE]
    budget.spend()
    return value
