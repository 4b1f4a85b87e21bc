"""Defines the whole resource, metadata and spec, as `sluice up FILE` and the operator read it."""

import re
from typing import Any, ClassVar, Final

from pydantic import ConfigDict

from sluice_operator.api.base import Model, Rule
from sluice_operator.api.patterns import RESOURCE_NAME
from sluice_operator.api.spec import LLMDeploymentSpec

MAX_NAME: Final = 52  # child names append up to 11 characters, and a DNS label has at most 63


def _name_fits(resource: Any) -> bool:
    name = resource.metadata.get("name")
    return isinstance(name, str) and len(name) <= MAX_NAME and re.match(RESOURCE_NAME, name) is not None


class LLMDeployment(Model):
    """LLMDeployment serves one model with as many replicas as its SLO requires."""

    model_config = ConfigDict(extra="ignore")  # a document also has apiVersion, kind and status

    RULES: ClassVar[tuple[Rule, ...]] = (
        Rule(
            cel=f"size(self.metadata.name) <= {MAX_NAME} && self.metadata.name.matches('{RESOURCE_NAME}')",
            sentence=f"metadata.name must be at most {MAX_NAME} lower-case letters, digits and -, a letter first: "
            "the names of its Services derive from it",
            holds=_name_fits,
        ),
    )

    metadata: dict[str, Any]
    spec: LLMDeploymentSpec

    @property
    def name(self) -> str:
        """Return metadata.name."""
        return str(self.metadata["name"])

    @property
    def namespace(self) -> str:
        """Return metadata.namespace, or `default` if the document has none."""
        return str(self.metadata.get("namespace") or "default")

    @property
    def served_name(self) -> str:
        """Return the model name that clients send in the `model` field."""
        return self.spec.model.served_name or self.name
