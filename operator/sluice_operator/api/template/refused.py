"""Declares fields of a pod that the overlay refuses: the API server would otherwise prune them and say nothing."""

from typing import Annotated, Any

from pydantic import Field, WithJsonSchema

# Any mapping, kept as it is until a rule refuses it with a sentence.
Refused = Annotated[
    dict[str, Any],
    Field(max_length=64),
    WithJsonSchema({"type": "object", "maxProperties": 64, "x-kubernetes-preserve-unknown-fields": True}),
]
