"""Defines how engines fetch a model: the Secrets with the access to its source, and `spec.model.cache`."""

from typing import Annotated, ClassVar

from pydantic import Field

from sluice_operator.api.base import Model, Rule
from sluice_operator.api.patterns import OBJECT_NAME, SECRET_KEY


class TokenSecretRef(Model):
    """One entry of a Secret in the namespace of the LLMDeployment. The operator never reads it; only the engine pods
    mount it."""

    name: Annotated[str, Field(max_length=253, pattern=OBJECT_NAME)]
    """name is the name of the Secret."""
    key: Annotated[str, Field(max_length=253, pattern=SECRET_KEY)] = "token"
    """key is the name of the entry that holds the token. Defaults to token."""


class CredentialsSecretRef(Model):
    """A Secret with S3 credentials in the namespace of the LLMDeployment. The operator never reads it; only the engine
    pods mount it."""

    name: Annotated[str, Field(max_length=253, pattern=OBJECT_NAME)]
    """name is the name of the Secret. Its entries are AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY and, for temporary
    credentials, AWS_SESSION_TOKEN."""


class ModelCache(Model):
    """Where downloaded models are kept. Pods that share it download a model once."""

    RULES: ClassVar[tuple[Rule, ...]] = (
        Rule(
            cel="has(self.claim) != self.node",
            sentence="model.cache must set either claim or node: true",
            holds=lambda c: (c.claim is not None) != c.node,
        ),
    )

    claim: Annotated[str, Field(max_length=253, pattern=OBJECT_NAME)] | None = None
    """claim is a PersistentVolumeClaim of this namespace that the engine pods may write to. Pods on several nodes need
    access mode ReadWriteMany."""
    node: bool = False
    """node selects the folder /var/lib/sluice/models of each node. It must exist and be writable by group 65532. Pod
    Security levels "baseline" and "restricted" do not allow it (hostPath): there the pods are rejected, and the Ready
    condition says so. Defaults to false."""
