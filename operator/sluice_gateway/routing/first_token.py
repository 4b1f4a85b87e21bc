"""Predicted time to first token of a prompt on a replica, from the step-time model that the replica publishes.

    TTFT = place + prefill(ahead) + prefill(own) + steps · decode

`place` is the wait for a running request to end, where the concurrency limit or the KV cache leaves no room. `prefill` is
the computation of the uncached prompt tokens, of the requests ahead and of this one. Prompts are computed in chunks, and
each chunk's step also decodes the running requests, which takes `decode` seconds.
"""

from collections.abc import Sequence
from typing import Final

from sluice_gateway.routing.values import Replica
from sluice_perfmodel.step_time import StepTimeModel

CHUNK_TOKENS: Final = 8192  # of a prompt per step; the engine's default
UNKNOWN: Final = StepTimeModel(base=0.03, prefill_token=1e-4, sequence=1e-3)  # where no replica has published a model


def with_models(replicas: Sequence[Replica], tokens: float) -> list[Replica]:
    """The replicas, those without a model of their own with the slowest model of the others for this prompt.

    Were a new replica taken to be fast, it would get every request until it has published that it is not.
    """
    known = [one.model for one in replicas if one.model is not None]
    if len(known) == len(replicas):
        return list(replicas)
    slowest = max(known, key=lambda model: seconds_per_token(model, tokens), default=UNKNOWN)
    return [one if one.model is not None else one._replace(model=slowest) for one in replicas]


def own_prefill_seconds(replica: Replica, tokens: float, cached: float) -> float:
    """Seconds to compute a prompt of which `cached` leading tokens are in the cache."""
    return (replica.model or UNKNOWN).prefill_seconds(tokens - cached, cached)


def seconds_to_first_token(replica: Replica, tokens: float, cached: float, own: float) -> float:
    """Predicted time to first token of a prompt that is sent now, seconds; `own` of them for its own computation."""
    model = replica.model or UNKNOWN
    decode = model.decode_seconds(replica.running, round(replica.kv_held))
    uncached = tokens - cached
    steps = 1.0 + (replica.prefill_tokens + uncached) / CHUNK_TOKENS
    ahead = replica.prefill_tokens * seconds_per_token(model, tokens)
    return seconds_to_place(replica, uncached, decode) + ahead + own + steps * decode


def seconds_per_token(model: StepTimeModel, tokens: float) -> float:
    """Mean seconds per token of a prompt of this length. Others that wait are taken to be as long as this one.

    A fit of few steps may explain all time by either term alone, so both count.
    """
    return model.prefill_token + model.prefill_context * tokens / 2.0


def seconds_to_place(replica: Replica, uncached: float, decode: float) -> float:
    """Seconds until the limit and the KV cache let the request run; `decode` is the duration of a decode step.

    Of n running requests one ends every (output · decode) / n seconds and frees 1/n of the held memory.
    """
    if replica.running <= 0:
        return 0.0
    short = replica.requests + 1.0 - replica.limit
    if replica.kv_total > 0.0 and replica.kv_held >= replica.running:
        beyond = replica.kv_held + replica.prefill_tokens + uncached - replica.kv_total
        short = max(short, beyond / (replica.kv_held / replica.running))
    return max(0.0, short) * replica.output_tokens * decode / replica.running
