"""The whole resource: metadata and spec, as `sluice up FILE` and the operator read it."""

import re
from typing import Any, ClassVar, Final

from pydantic import ConfigDict

from sluice_operator.api.base import Model, Rule
from sluice_operator.api.spec import LLMDeploymentSpec
from sluice_operator.api.words import RESOURCE_NAME

MAX_NAME: Final = 52  # child names add up to 11 characters, and none may exceed the 63 of a DNS label


def _name_fits(resource: Any) -> bool:
    name = resource.metadata.get("name")
    return isinstance(name, str) and len(name) <= MAX_NAME and re.match(RESOURCE_NAME, name) is not None


class LLMDeployment(Model):
    """One model, served by as many replicas as its SLO needs."""

    model_config = ConfigDict(extra="ignore")  # apiVersion, kind and status travel beside these

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
        """metadata.name."""
        return str(self.metadata["name"])

    @property
    def namespace(self) -> str:
        """metadata.namespace; `default` where the document has none."""
        return str(self.metadata.get("namespace") or "default")

    @property
    def served_name(self) -> str:
        """The `model` that clients ask for."""
        return self.spec.model.served_name or self.name
