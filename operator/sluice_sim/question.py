"""What a user asks of `sluice simulate`, made into a trace, settings and the notes that belong beside the result."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from sluice_operator.api import LLMDeploymentSpec
from sluice_operator.yaml_file import BadFile, read_resource
from sluice_sim.data import bundled
from sluice_sim.profiles import DEFAULT_NAME, BadProfile, Profile, named_profile, read_profile
from sluice_sim.settings import USUAL_MODEL_LENGTH, Mode, Routing, Settings
from sluice_sim.traces import Arrival, BadTrace, Part, poisson, read_trace, scaled

USUAL_SECONDS = 600.0


class BadInput(Exception):
    """The user's input cannot be used. One sentence per fault."""

    def __init__(self, faults: tuple[str, ...]) -> None:
        super().__init__("; ".join(faults))
        self.faults = faults


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
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
    """The question understood."""

    spec: LLMDeploymentSpec
    arrivals: tuple[Arrival, ...]
    settings: Settings
    gpus: int  # per replica
    notes: tuple[str, ...]


def understood(question: Question) -> Case:
    """Read the files. Raises BadInput."""
    try:
        spec = read_resource(question.file)[1].spec
        profile = read_profile(question.profile)
        settings = _settings(question, spec, profile)
        arrivals = _arrivals(question)
    except BadFile as error:
        raise BadInput(error.faults) from error
    except (BadTrace, BadProfile, ValueError) as error:
        raise BadInput((str(error),)) from error
    except OSError as error:
        raise BadInput((f"{error.filename} cannot be read: {error.strerror}",)) from error
    count = spec.engine.accelerator.count
    gpus = profile.gpus or max(1, count)
    notes = list(_notes(question, profile, settings, arrivals, spec.engine.scheduling.policy))
    if profile.gpus not in (None, count):
        notes.append(f"GPUs: {gpus} per replica, as the profile; spec.engine.accelerator.count is {count}")
    return Case(spec, arrivals, settings, gpus, tuple(notes))


def _settings(question: Question, spec: LLMDeploymentSpec, profile: Profile) -> Settings:
    return Settings(
        profile=profile.model,
        kv_tokens=question.kv_tokens or profile.kv_tokens or (named_profile(DEFAULT_NAME).kv_tokens or 1),
        interval=question.interval,
        cold_start=question.cold_start,
        cold_start_spread=question.cold_start_spread,
        max_model_length=spec.model.max_model_length or USUAL_MODEL_LENGTH,
        routing=question.routing,
        mode=question.mode,
        seed=question.seed,
        pod_failures=question.pod_failures,
        metrics_delay=question.metrics_delay,
        metrics_loss=question.metrics_loss,
        profile_error=question.profile_error,
    )


def _arrivals(question: Question) -> tuple[Arrival, ...]:
    if question.trace is None and question.rate is None:
        raise BadInput(("Give either --trace FILE or --rate REQUESTS_PER_SECOND.",))
    if question.trace is None:
        seconds = question.seconds or USUAL_SECONDS
        made = poisson(question.rate or 0.0, seconds, question.prompt_tokens, question.output_tokens, question.seed)
        if not made:
            raise BadInput((f"--rate {question.rate:g} gives no request in {seconds:g} s: raise it, or --seconds.",))
    else:
        lengths = None if question.lengths is None else _found(question.lengths)
        part = Part(question.start, question.seconds, question.rate, lengths, question.seed)
        made = read_trace(_found(question.trace), part)
    return made if question.scale == 1.0 else scaled(made, question.scale, question.seed)


def _found(name: str) -> Path:
    """A file of the user's, or a bundled one by its name."""
    path = Path(name)
    return path if path.exists() else bundled(name) or path


def _notes(
    question: Question, profile: Profile, settings: Settings, arrivals: tuple[Arrival, ...], policy: str
) -> tuple[str, ...]:
    """What the reader must know to judge the figures."""
    model = profile.model
    costs = (
        f"{model.base * 1e3:.3g} ms per step + {model.sequence * 1e6:.3g} µs per sequence + "
        f"{model.kv_token * 1e9:.3g} ns per KV token + {model.prefill_token * 1e6:.3g} µs per prompt token + "
        f"{model.prefill_context * 1e9:.3g} ns per prompt token and token before it"
    )
    spread = f" ± {settings.cold_start_spread:.0%}" if settings.cold_start_spread else ""
    how = f"{settings.mode} steps; {settings.routing.replace('_', ' ')}; cold start {settings.cold_start:g} s{spread}"
    notes = [
        f"profile: {profile.words}: {costs}; {settings.kv_tokens} KV tokens",
        f"{how}; decisions every {settings.interval:g} s; seed {settings.seed}",
    ]
    longest = max(one.prompt for one in arrivals)
    if profile.longest_prompt is not None and longest > profile.longest_prompt:
        notes.append(
            f"prompts of up to {longest} tokens: beyond {profile.longest_prompt}, the longest measured, their time is "
            "extrapolated with the fitted quadratic term"
        )
    if settings.mode == "coarse" and policy not in ("fcfs", "priority"):
        notes.append(
            f"coarse steps serve first come first served, not by the policy {policy} of spec.engine.scheduling"
        )
    if question.scale > 1:
        notes.append(f"load × {question.scale:g}: superposed copies, each request moved by 0 to 10 s")
    elif question.scale < 1:
        notes.append(f"load × {question.scale:g}: requests kept by chance")
    if question.lengths is not None:
        notes.append("ServeGen: measured rates of the clients with known lengths; arrivals in 600 s are its model")
    return (*notes, *_beyond_context(arrivals, settings.max_model_length))


def _beyond_context(arrivals: tuple[Arrival, ...], context: int) -> Iterator[str]:
    served = [one.within(context) for one in arrivals]
    refused = sum(one is None for one in served)
    cut = sum(one is not None and one.output < asked.output for one, asked in zip(served, arrivals, strict=True))
    where = "spec.model.maxModelLength says how long prompt and answer may be"
    if refused:
        yield f"prompts that leave no room for an answer in {context} tokens, all refused: {refused}; {where}"
    if cut:
        yield f"answers that end where the context of {context} tokens is full: {cut}; {where}"
