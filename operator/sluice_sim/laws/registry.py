"""All laws by name: ours, its ablations, and its peers. A family's name stands for all its members."""

from collections.abc import Iterable, Mapping
from typing import Final

from sluice_sim.laws.apa import APA
from sluice_sim.laws.dynamo_load import DYNAMO_LOAD
from sluice_sim.laws.dynamo_throughput import DYNAMO_THROUGHPUT
from sluice_sim.laws.hpa import ON_KV, ON_QUEUE, ON_RUNNING
from sluice_sim.laws.keda import KEDA
from sluice_sim.laws.kpa import KPA
from sluice_sim.laws.law import Entry
from sluice_sim.laws.llmd_slo import LLMD_SLO
from sluice_sim.laws.llmd_tokens import LLMD_TOKENS
from sluice_sim.laws.ours import ADMISSION_ONLY, REPLICAS_ONLY, SLUICE
from sluice_sim.laws.wva_queueing import WVA_QUEUEING
from sluice_sim.laws.wva_v1 import WVA_V1
from sluice_sim.laws.wva_v2 import WVA_V2

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
    """No law has this name. The message names those that there are."""


def named(names: Iterable[str]) -> tuple[str, ...]:
    """The laws that names and families stand for, each once, in the order given. Raises UnknownLaw."""
    found: dict[str, None] = {}
    for name in names:
        members = [law for law in LAWS if law == name or (name in FAMILIES and law.startswith(f"{name}-"))]
        if not members:
            raise UnknownLaw(
                f"{name!r} is no law; known are {', '.join(LAWS)}, and {', '.join(FAMILIES)} for all of theirs"
            )
        found |= dict.fromkeys(members)
    return tuple(found)
