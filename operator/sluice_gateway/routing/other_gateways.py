"""Which replica a conversation is sent to by gateways that do not know each other's requests: by rendezvous hashing.

A gateway's view has only the prompts that it has sent itself, so that two gateways would place one conversation by load,
each elsewhere. The discount brings them together where the replicas cost nearly the same:

    discount = SHARE · (1 + COMPUTATION) · prefill(own), at the replica of the highest affinity

It is the price of computing the prompt there, times the probability that another gateway has had it cached there.
"""

from collections.abc import Sequence
from typing import Final

from sluice_gateway.routing.sessions import affinity
from sluice_gateway.routing.values import Prompt

# Beyond 0.05 the waits for the preferred replica cost more than its hits save: operator/LOG.md has others, measured.
SHARE: Final = 0.05


def own_step(prompt: Prompt, cached: Sequence[float]) -> int | None:
    """The first step that the prompt does not share with most others; None without one. It names the conversation.

    `cached` are the prompt's cached tokens by replica. What at least half of them have, such as a system prompt, belongs to
    many conversations, which would all go to one replica.
    """
    common = sorted(cached)[(len(cached) - 1) // 2]
    place = int(common / prompt.step_tokens + 1e-6)
    return prompt.steps[place] if place < len(prompt.steps) else None


def preferred(step: int, names: Sequence[str]) -> int:
    """The place of the replica that every gateway prefers for the conversation."""
    return max(range(len(names)), key=lambda place: affinity(f"{step:x}", names[place]))
