"""Turns the options of `sluice simulate` into a trace, settings and the notes beside the result."""

import math
from collections.abc import Iterator
from dataclasses import dataclass, fields
from datetime import UTC, datetime
from pathlib import Path

from sluice_operator.api import LLMDeploymentSpec
from sluice_operator.api.yaml_file import BadFile
from sluice_sim.cli.notes import assumptions, cut_outputs, ignored_fields, rejected_prompts, rejection
from sluice_sim.cli.specs import NamedSpec, read_specs
from sluice_sim.cluster.scenario import USUAL_MODEL_LENGTH, Mode, Routing, Settings
from sluice_sim.data import bundled
from sluice_sim.hardware.profiles import DEFAULT_NAME, BadProfile, Profile, named_profile, read_profile
from sluice_sim.traces import Arrival, BadTrace, Load, Part, poisson, read_load, scaled

USUAL_SECONDS = 600.0


class BadInput(Exception):
    """The user's input is invalid. `faults` holds one sentence per fault."""

    def __init__(self, faults: tuple[str, ...]) -> None:
        super().__init__("; ".join(faults))
        self.faults = faults


@dataclass(frozen=True, slots=True, kw_only=True)
class SimulateOptions:
    """The options of `sluice simulate`."""

    specs: tuple[Path, ...]  # one file each
    min_replicas: int | None = None  # instead of the specs'
    max_replicas: int | None = None
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
class Case:
    """One spec under the load. `warning` comes before every figure, `notes` beside them."""

    name: str
    spec: LLMDeploymentSpec
    settings: Settings
    gpus: int  # per replica
    too_long: int  # prompts that no replica has room for
    warning: str | None
    notes: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class SimulationInput:
    """The validated input of a simulation: one load, and the cases that it is simulated with."""

    cases: tuple[Case, ...]
    arrivals: tuple[Arrival, ...]


def read_input(options: SimulateOptions) -> SimulationInput:
    """Read the files and validate the options. Raises BadInput."""
    _reject_non_finite(options)
    try:
        specs = read_specs(options.specs, options.min_replicas, options.max_replicas)
        profile = read_profile(options.profile)
        settings = [_settings(options, one.spec, profile) for one in specs]
        load = _load(options)
    except BadFile as error:
        raise BadInput(error.faults) from error
    except (BadTrace, BadProfile, ValueError) as error:
        raise BadInput((str(error),)) from error
    except OSError as error:
        raise BadInput((f"{error.filename} cannot be read: {error.strerror}",)) from error
    arrivals = tuple(load.arrivals)
    about = (*_profile_note(options), *_load_notes(options), *load.notes)
    cases = (_case(one, its, profile, Load(arrivals, about)) for one, its in zip(specs, settings, strict=True))
    return SimulationInput(tuple(cases), arrivals)


def _case(named: NamedSpec, settings: Settings, profile: Profile, load: Load) -> Case:
    spec, arrivals = named.spec, tuple(load.arrivals)
    count = spec.engine.accelerator.count
    gpus = profile.gpus or max(1, count)
    notes = [
        *assumptions(spec, profile, settings, arrivals),
        *load.notes,
        *ignored_fields(spec, settings),
        *cut_outputs(settings, arrivals),
    ]
    if profile.gpus not in (None, count):
        notes.append(f"GPUs: {gpus} per replica, from the profile; spec.engine.accelerator.count is {count}")
    too_long = rejected_prompts(settings, arrivals)
    warning = rejection(spec, settings, arrivals, too_long) if too_long else None
    return Case(named.name, spec, settings, gpus, too_long, warning, tuple(notes))


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


def _load(options: SimulateOptions) -> Load:
    if options.trace is None and options.rate is None:
        raise BadInput(("Give either --trace FILE or --rate REQUESTS_PER_SECOND.",))
    if options.trace is None and (options.lengths is not None or options.start > 0):
        raise BadInput(("--lengths and --start are about a trace: give --trace with them, or leave them out.",))
    if options.trace is None:
        seconds = options.seconds or USUAL_SECONDS
        rate, lengths = options.rate or 0.0, (options.prompt_tokens, options.output_tokens)
        made = Load(poisson(rate, seconds, *lengths, options.seed))
        if not made.arrivals:
            raise BadInput((f"--rate {rate:g} gives no request in {seconds:g} s: raise it, or --seconds.",))
    else:
        file = None if options.lengths is None else _trace_file(options.lengths)
        part = Part(options.start, options.seconds, options.rate, file, options.seed, options.output_tokens)
        made = read_load(_trace_file(options.trace), part)
    if options.scale == 1.0:
        return made
    return Load(scaled(tuple(made.arrivals), options.scale, options.seed), made.notes)


def _trace_file(name: str) -> Path:
    """The user's file of this name, or else the bundled one."""
    path = Path(name)
    return path if path.exists() else bundled(name) or path


def _profile_note(options: SimulateOptions) -> Iterator[str]:
    """Whose step times are assumed without --profile, and how to measure others."""
    if options.profile is None:
        yield (
            f"no --profile is given, so the step times are those of {DEFAULT_NAME}: measure a server of your own with "
            "sluice bench URL --profile-out FILE, and give --profile FILE"
        )


def _load_notes(options: SimulateOptions) -> Iterator[str]:
    """Notes on how the trace was scaled and generated."""
    if options.scale > 1:
        yield f"load × {options.scale:g}: superposed copies, each request moved by 0 to 10 s"
    elif options.scale < 1:
        yield f"load × {options.scale:g}: requests kept by chance"
    if options.lengths is not None:
        yield "ServeGen: measured rates of the clients with known lengths; arrivals in 600 s are its model"
