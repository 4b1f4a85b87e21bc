"""Turns the options of `sluice simulate` into a trace, settings and the notes beside the result."""

import math
from collections.abc import Iterator
from dataclasses import dataclass, fields
from datetime import UTC, datetime
from pathlib import Path

from sluice_operator.api import LLMDeploymentSpec
from sluice_operator.api.yaml_file import BadFile, read_resource
from sluice_sim.cli.notes import assumptions, context_overflow, ignored_fields
from sluice_sim.cluster.scenario import USUAL_MODEL_LENGTH, Mode, Routing, Settings
from sluice_sim.data import bundled
from sluice_sim.hardware.profiles import DEFAULT_NAME, BadProfile, Profile, named_profile, read_profile
from sluice_sim.traces import Arrival, BadTrace, Part, poisson, read_trace, scaled

USUAL_SECONDS = 600.0


class BadInput(Exception):
    """The user's input is invalid. `faults` holds one sentence per fault."""

    def __init__(self, faults: tuple[str, ...]) -> None:
        super().__init__("; ".join(faults))
        self.faults = faults


@dataclass(frozen=True, slots=True, kw_only=True)
class SimulateOptions:
    """The options of `sluice simulate`."""

    file: Path
    trace: str | None = None
    lengths: str | None = None
    rate: float | None = None
    prompt_tokens: int = 512
    output_tokens: int = 128
    start: float = 0.0
    seconds: float | None = None
    scale: float = 1.0
    profile: str | None = None
    kv_tokens: int | None = None
    cold_start: float = 60.0
    cold_start_spread: float = 0.0
    interval: float = 5.0
    clock: str | None = None
    routing: Routing = "round_robin"
    mode: Mode = "exact"
    pod_failures: float = 0.0
    metrics_delay: float = 0.0
    metrics_loss: float = 0.0
    profile_error: float = 0.0
    compare: str | None = None
    plot: Path | None = None
    seed: int = 0


@dataclass(frozen=True, slots=True)
class SimulationInput:
    """The validated input of a simulation."""

    spec: LLMDeploymentSpec
    arrivals: tuple[Arrival, ...]
    settings: Settings
    gpus: int  # per replica
    notes: tuple[str, ...]


def read_input(options: SimulateOptions) -> SimulationInput:
    """Read the files and validate the options. Raises BadInput."""
    _reject_non_finite(options)
    try:
        spec = read_resource(options.file)[1].spec
        profile = read_profile(options.profile)
        settings = _settings(options, spec, profile)
        arrivals = _arrivals(options)
    except BadFile as error:
        raise BadInput(error.faults) from error
    except (BadTrace, BadProfile, ValueError) as error:
        raise BadInput((str(error),)) from error
    except OSError as error:
        raise BadInput((f"{error.filename} cannot be read: {error.strerror}",)) from error
    count = spec.engine.accelerator.count
    gpus = profile.gpus or max(1, count)
    notes = [
        *assumptions(spec, profile, settings, arrivals),
        *_load_notes(options),
        *ignored_fields(spec, settings),
        *context_overflow(arrivals, settings.max_model_length),
    ]
    if profile.gpus not in (None, count):
        notes.append(f"GPUs: {gpus} per replica, from the profile; spec.engine.accelerator.count is {count}")
    return SimulationInput(spec, arrivals, settings, gpus, tuple(notes))


def _settings(options: SimulateOptions, spec: LLMDeploymentSpec, profile: Profile) -> Settings:
    return Settings(
        profile=profile.model,
        kv_tokens=options.kv_tokens or profile.kv_tokens or (named_profile(DEFAULT_NAME).kv_tokens or 1),
        interval=options.interval,
        cold_start=options.cold_start,
        cold_start_spread=options.cold_start_spread,
        max_model_length=spec.model.max_model_length or USUAL_MODEL_LENGTH,
        routing=options.routing,
        mode=options.mode,
        seed=options.seed,
        pod_failures=options.pod_failures,
        metrics_delay=options.metrics_delay,
        metrics_loss=options.metrics_loss,
        profile_error=options.profile_error,
        wall=None if options.clock is None else _wall(options.clock),
    )


def _wall(text: str) -> float:
    """Parse --clock into seconds since 1970, UTC by default. Raises BadInput."""
    try:
        moment = datetime.fromisoformat(text)
        return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()
    except (ValueError, OverflowError) as error:
        sentence = f"--clock: expected a time like 2026-03-02T08:00 (UTC) or 2026-03-02T08:00+01:00, found {text!r}"
        raise BadInput((sentence,)) from error


def _reject_non_finite(options: SimulateOptions) -> None:
    """Reject NaN and inf: the options' ranges accept them, and such a run would never end. Raises BadInput."""
    for field in fields(options):
        value = getattr(options, field.name)
        if isinstance(value, float) and not math.isfinite(value):
            raise BadInput((f"--{field.name.replace('_', '-')}: expected a number, found {value}",))


def _arrivals(options: SimulateOptions) -> tuple[Arrival, ...]:
    if options.trace is None and options.rate is None:
        raise BadInput(("Give either --trace FILE or --rate REQUESTS_PER_SECOND.",))
    if options.trace is None and (options.lengths is not None or options.start > 0):
        raise BadInput(("--lengths and --start are about a trace: give --trace with them, or leave them out.",))
    if options.trace is None:
        seconds = options.seconds or USUAL_SECONDS
        made = poisson(options.rate or 0.0, seconds, options.prompt_tokens, options.output_tokens, options.seed)
        if not made:
            raise BadInput((f"--rate {options.rate:g} gives no request in {seconds:g} s: raise it, or --seconds.",))
    else:
        lengths = None if options.lengths is None else _trace_file(options.lengths)
        part = Part(options.start, options.seconds, options.rate, lengths, options.seed)
        made = read_trace(_trace_file(options.trace), part)
    return made if options.scale == 1.0 else scaled(made, options.scale, options.seed)


def _trace_file(name: str) -> Path:
    """The user's file of this name, or else the bundled one."""
    path = Path(name)
    return path if path.exists() else bundled(name) or path


def _load_notes(options: SimulateOptions) -> Iterator[str]:
    """Notes on how the trace was scaled and generated."""
    if options.scale > 1:
        yield f"load × {options.scale:g}: superposed copies, each request moved by 0 to 10 s"
    elif options.scale < 1:
        yield f"load × {options.scale:g}: requests kept by chance"
    if options.lengths is not None:
        yield "ServeGen: measured rates of the clients with known lengths; arrivals in 600 s are its model"
