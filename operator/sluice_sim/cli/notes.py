"""Notes beside a simulation's figures: its assumptions, and the fields of the spec that have no effect in it."""

from collections.abc import Iterator, Sequence
from datetime import UTC, datetime

from sluice_operator.api import LLMDeploymentSpec
from sluice_sim.cluster.routing import POLICY
from sluice_sim.cluster.scenario import Settings
from sluice_sim.hardware.profiles import Profile
from sluice_sim.traces import Arrival


def assumptions(
    spec: LLMDeploymentSpec, profile: Profile, settings: Settings, arrivals: Sequence[Arrival]
) -> Iterator[str]:
    """The profile, the settings, and where the trace exceeds the profile's measured range."""
    model, policy = profile.model, spec.engine.scheduling.policy
    costs = (
        f"{_digits(model.base * 1e3)} ms per step + {_digits(model.sequence * 1e6)} µs per sequence + "
        f"{_digits(model.kv_token * 1e9)} ns per KV token + {_digits(model.prefill_token * 1e6)} µs per prompt token + "
        f"{_digits(model.prefill_context * 1e9)} ns per prompt token and token before it"
    )
    yield f"profile: {profile.words}: {costs}; {settings.kv_tokens} KV tokens"
    spread = f" ± {settings.cold_start_spread:.0%}" if settings.cold_start_spread else ""
    how = f"{settings.mode} steps; {settings.routing.replace('_', ' ')}; cold start {settings.cold_start:g} s{spread}"
    yield f"{how}; decisions every {settings.interval:g} s; seed {settings.seed}"
    if settings.wall is not None:
        yield f"the trace begins on {datetime.fromtimestamp(settings.wall, UTC):%a %Y-%m-%d %H:%M} UTC"
    longest = max(one.prompt for one in arrivals)
    if profile.longest_prompt is not None and longest > profile.longest_prompt:
        yield (
            f"prompts of up to {longest} tokens: beyond {profile.longest_prompt}, the longest measured, their time is "
            "extrapolated with the fitted quadratic term"
        )
    if settings.mode == "coarse" and policy not in ("fcfs", "priority"):
        yield f"coarse steps serve first come first served, not by the policy {policy} of spec.engine.scheduling"


def _digits(value: float) -> str:
    """Three significant digits, without an exponent."""
    return f"{value:.3g}" if value < 1000 else f"{value:.0f}"


def ignored_fields(spec: LLMDeploymentSpec, settings: Settings) -> Iterator[str]:
    """Fields of the spec that have no effect in the simulation, or only a part of their effect."""
    scaling, kv_cache = spec.scaling, spec.engine.kv_cache
    if scaling.schedules and settings.wall is None:
        yield "spec.scaling.schedules: not simulated, since a trace has no date: give its start with --clock"
    if scaling.min_replicas == 0 and scaling.mode in ("Auto", "Advise"):
        yield "spec.scaling.minReplicas 0: no gateway holds requests here, so one replica stays, as in a cluster"
    if spec.paused:
        yield "spec.paused: the law decides nothing; set it to false to simulate its decisions"
    if spec.routing.policy not in (None, POLICY[settings.routing]):
        yield f"spec.routing.policy {spec.routing.policy}: not simulated; --routing {settings.routing} is"
    written = kv_cache.model_fields_set
    sizes = [name for name, field in (("size", "size"), ("memoryPercent", "memory_percent")) if field in written]
    if sizes:
        names = " and ".join(f"spec.engine.kvCache.{name}" for name in sizes)
        yield f"{names}: not simulated; a replica holds {settings.kv_tokens} KV tokens, from the profile or --kv-tokens"
    if kv_cache.cpu_offload_gib:
        yield "spec.engine.kvCache.cpuOffloadGiB: not simulated; preempted requests compute their prompt again"


def rejected_prompts(settings: Settings, arrivals: Sequence[Arrival]) -> int:
    """The number of prompts without room for an output token."""
    context = context_tokens(settings)
    return sum(one.within(context) is None for one in arrivals)


def rejection(spec: LLMDeploymentSpec, settings: Settings, arrivals: Sequence[Arrival], rejected: int) -> str:
    """How many prompts are too long: it is the first that a reader has to know of such a result."""
    context = context_tokens(settings)
    longest = max(one.prompt + one.output for one in arrivals)
    if context < settings.max_model_length:
        limit = f"a replica's KV cache holds {context}: give more with --profile or --kv-tokens"
    elif spec.model.max_model_length is None:
        limit = f"set spec.model.maxModelLength ({context} is assumed without it)"
    else:
        limit = f"set spec.model.maxModelLength (it is {context})"
    return (
        f"{rejected} of {len(arrivals)} prompts are longer than {context - 1} tokens, all rejected: {limit}; "
        f"the longest request has {longest} tokens with its output"
    )


def cut_outputs(settings: Settings, arrivals: Sequence[Arrival]) -> Iterator[str]:
    """Outputs that end at the maximum length of the context."""
    context = context_tokens(settings)
    served = ((asked, asked.within(context)) for asked in arrivals)
    cut = sum(one is not None and one.output < asked.output for asked, one in served)
    if cut:
        yield (
            f"outputs cut at the context of {context} tokens: {cut}; spec.model.maxModelLength limits prompt and output"
        )


def context_tokens(settings: Settings) -> int:
    """Maximum tokens of a prompt with its output, as in cluster/fleet.py: the model's, or what the KV cache holds."""
    return min(settings.max_model_length, settings.kv_tokens // settings.block_size * settings.block_size)
