"""What a check reads of a model, as plain data."""

import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Protocol

from sluice.models.support import unserved
from sluice.models.tensor_parallel import ShardedSizes, sizes_of, unshared_type
from sluice.models.uri import ModelUri
from sluice_perfmodel.model_memory import ModelFacts, facts_of, parameters_of

ADAPTER: Final = "adapter_config.json"
SENTENCE_MODEL: Final = "modules.json"  # sentence-transformers: the model embeds and caches nothing


class NotChecked(Exception):
    """The model could not be read. The message is the reason, as a clause without a full stop."""


@dataclass(frozen=True, slots=True)
class ModelRecord:
    """One model as read."""

    facts: ModelFacts
    fault: str | None = None  # why the engine cannot serve it, as a predicate
    sizes: ShardedSizes | None = None  # that accelerators share; None: the config does not tell
    unshared: str | None = None  # the model type, if accelerators cannot share it


class ModelReader(Protocol):
    """Reads models of one kind of source."""

    async def read(self, uri: ModelUri) -> ModelRecord:
        """Raises NotChecked."""


def record_of(config: bytes, names: Collection[str], headers: Sequence[tuple[Mapping[str, Any], int]]) -> ModelRecord:
    """The record of a model with these files, from its config.json and (header, bytes of tensors) of its weights.

    Raises NotChecked if the config is no JSON object.
    """
    try:
        parsed = json.loads(config)
    except (ValueError, RecursionError) as error:
        raise NotChecked("its config.json is not JSON") from error
    if not isinstance(parsed, dict):
        raise NotChecked("its config.json is not a JSON object")
    parameters = parameters_of(headers, tied=parsed.get("tie_word_embeddings") is True)
    facts = facts_of(parsed, parameters, generates=SENTENCE_MODEL not in names)
    return ModelRecord(facts, unserved(parsed), sizes_of(parsed), unshared_type(parsed))


def adapter_record() -> ModelRecord:
    """The record of a repository with a LoRA adapter alone."""
    return ModelRecord(
        facts_of({}, 0),
        "holds a LoRA adapter without its base model, and adapters are not served. Merge it into its base model (peft's "
        "merge_and_unload) and serve the result.",
    )
