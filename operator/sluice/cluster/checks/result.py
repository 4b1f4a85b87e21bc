"""The result of one check, and how all of them are shown."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any, Final, Literal

from sluice.sentences import wrapped

State = Literal["ok", "warning", "failure"]
_INDENT: Final = 9  # "failure" and two blanks


@dataclass(frozen=True, slots=True)
class Result:
    """`message` is what was found and `remedy` what to do about it, one sentence each; an ok result has no remedy."""

    check: str
    state: State
    message: str
    remedy: str = ""


def ok(check: str, message: str) -> Result:
    """Nothing is wrong."""
    return Result(check, "ok", message)


def warning(check: str, message: str, remedy: str) -> Result:
    """It may be meant so, or it could not be checked."""
    return Result(check, "warning", message, remedy)


def failure(check: str, message: str, remedy: str) -> Result:
    """Sluice does not work like this."""
    return Result(check, "failure", message, remedy)


def has_failure(results: Sequence[Result]) -> bool:
    """True if one of the checks failed."""
    return any(each.state == "failure" for each in results)


def as_json(results: Sequence[Result]) -> dict[str, Any]:
    """All results for a program."""
    return {"ok": not has_failure(results), "checks": [asdict(each) for each in results]}


def result_lines(results: Sequence[Result], width: int) -> list[str]:
    """The results as lines of at most `width`, with their number at the end."""
    lines: list[str] = []
    for each in results:
        first = wrapped(f"{each.check}: {each.message}", width - _INDENT).splitlines()
        then = wrapped(f"  {each.remedy}", width - _INDENT).splitlines() if each.remedy else []
        lines.append(f"{each.state:<{_INDENT}}{first[0]}")
        lines += [" " * _INDENT + line for line in (*first[1:], *then)]
    counts = {state: sum(each.state == state for each in results) for state in ("failure", "warning")}
    lines.append(", ".join(f"{count} {state}{'' if count == 1 else 's'}" for state, count in counts.items()))
    return lines
