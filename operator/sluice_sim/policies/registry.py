"""Registry of all control laws by name: Sluice's own, its ablations, and those of other systems.

The name of a family stands for all its members.
"""

from collections.abc import Iterable, Mapping
from typing import Final

from sluice_sim.policies.apa import APA
from sluice_sim.policies.dynamo.load import DYNAMO_LOAD
from sluice_sim.policies.dynamo.throughput import DYNAMO_THROUGHPUT
from sluice_sim.policies.hpa.keda import KEDA
from sluice_sim.policies.hpa.metric import ON_KV, ON_QUEUE, ON_RUNNING
from sluice_sim.policies.kpa import KPA
from sluice_sim.policies.llmd.slo import LLMD_SLO
from sluice_sim.policies.llmd.tokens import LLMD_TOKENS
from sluice_sim.policies.policy import Entry
from sluice_sim.policies.sluice import ADMISSION_ONLY, REPLICAS_ONLY, SLUICE
from sluice_sim.policies.wva.queueing import WVA_QUEUEING
from sluice_sim.policies.wva.v1 import WVA_V1
from sluice_sim.policies.wva.v2 import WVA_V2

LAWS: Final[Mapping[str, Entry]] = {
    "sluice": SLUICE,
    "replicas-only": REPLICAS_ONLY,
    "admission-only": ADMISSION_ONLY,
    "hpa-queue": ON_QUEUE,
    "hpa-running": ON_RUNNING,
    "hpa-kv": ON_KV,
    "keda": KEDA,
    "kpa": KPA,
    "apa": APA,
    "llm-d-slo": LLMD_SLO,
    "llm-d-tokens": LLMD_TOKENS,
    "wva-v1": WVA_V1,
    "wva-v2": WVA_V2,
    "wva-queueing": WVA_QUEUEING,
    "dynamo-throughput": DYNAMO_THROUGHPUT,
    "dynamo-load": DYNAMO_LOAD,
}
FAMILIES: Final = ("hpa", "llm-d", "wva", "dynamo")


class UnknownLaw(ValueError):
    """No law has this name. The message lists the known names."""


def named(names: Iterable[str]) -> tuple[str, ...]:
    """Resolve names and families to the names of laws, each once, in the given order. Raises UnknownLaw."""
    found: dict[str, None] = {}
    for name in names:
        members = [law for law in LAWS if law == name or (name in FAMILIES and law.startswith(f"{name}-"))]
        if not members:
            raise UnknownLaw(
                f"{name!r} is no law; known are {', '.join(LAWS)}, and {', '.join(FAMILIES)} for all of theirs"
            )
        found |= dict.fromkeys(members)
    return tuple(found)
