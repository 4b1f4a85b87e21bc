"""From what a user asks to a run and its picture in words: everything of `sluice simulate` but the option parsing."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

from sluice_law.steptime import StepTimeModel
from sluice_operator.yaml_file import BadFile, read_resource
from sluice_sim.fleet import USUAL_MODEL_LENGTH, Fleet, Settings
from sluice_sim.profiles import DEFAULT, DEFAULT_KV_TOKENS, DEFAULT_NAME, BadProfile, parse_profile
from sluice_sim.result import summarise
from sluice_sim.show import decisions, table
from sluice_sim.traces import Arrival, BadTrace, poisson, read_trace

USUAL_SECONDS = 600.0


class BadInput(Exception):
    """The user's input cannot be used. One sentence per fault."""

    def __init__(self, faults: tuple[str, ...]) -> None:
        super().__init__("; ".join(faults))
        self.faults = faults


@dataclass(frozen=True, slots=True)
class Question:
    """The options of `sluice simulate`."""

    file: Path
    trace: Path | None
    rate: float | None
    prompt_tokens: int
    output_tokens: int
    seconds: float | None
    profile: str | None
    kv_tokens: int | None
    cold_start: float
    interval: float
    seed: int


def answer(question: Question, console: Console | None = None) -> None:
    """Simulate and print. Raises BadInput."""
    console = console or Console()
    try:
        spec = read_resource(question.file)[1].spec
        arrivals = _arrivals(question)
        profile = DEFAULT if question.profile is None else parse_profile(question.profile)
    except BadFile as error:
        raise BadInput(error.faults) from error
    except (BadTrace, BadProfile) as error:
        raise BadInput((str(error),)) from error
    except OSError as error:
        raise BadInput((f"{error.filename} cannot be read: {error.strerror}",)) from error
    settings = Settings(
        profile=profile,
        kv_tokens=question.kv_tokens or DEFAULT_KV_TOKENS,
        interval=question.interval,
        cold_start=question.cold_start,
        max_model_length=spec.model.max_model_length or USUAL_MODEL_LENGTH,
    )
    with _bar(console, arrivals[-1].at) as advance:
        run = Fleet(spec, settings).run(arrivals, advance)
    console.print(table(summarise(run), spec, _words(question.profile, profile, settings)))
    for line in decisions(run):
        console.print(line, highlight=False, markup=False, soft_wrap=True)


def _arrivals(question: Question) -> tuple[Arrival, ...]:
    if (question.trace is None) == (question.rate is None):
        raise BadInput(("Give either --trace FILE or --rate REQUESTS_PER_SECOND.",))
    if question.trace is not None:
        return read_trace(question.trace, question.seconds)
    seconds = question.seconds or USUAL_SECONDS
    made = poisson(question.rate or 0.0, seconds, question.prompt_tokens, question.output_tokens, question.seed)
    if not made:
        raise BadInput((f"--rate {question.rate:g} gives no request in {seconds:g} s: raise it, or --seconds.",))
    return made


def _words(given: str | None, profile: StepTimeModel, settings: Settings) -> str:
    name = "given by --profile" if given is not None else DEFAULT_NAME
    return (
        f"profile: {name}: {profile.base * 1e3:g} ms per step + {profile.sequence * 1e3:g} per sequence + "
        f"{profile.prefill_token * 1e3:g} per prompt token; {settings.kv_tokens} KV tokens; "
        f"cold start {settings.cold_start:g} s; round robin; exact steps"
    )


@contextmanager
def _bar(console: Console, seconds: float) -> Iterator[Callable[[float], None]]:
    """A progress bar on a terminal, silence elsewhere."""
    if not console.is_terminal:
        yield lambda _: None
        return
    columns = (TextColumn("simulating"), BarColumn(), TextColumn("{task.completed:.0f} s"), TimeRemainingColumn())
    with Progress(*columns, console=console, transient=True) as progress:
        task = progress.add_task("", total=max(seconds, 1.0))
        yield lambda now: progress.update(task, completed=now)
