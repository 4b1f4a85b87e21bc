"""Defines `spec.auth`: the Secrets that decide who may call the model and by which certificate."""

from typing import Annotated

from pydantic import Field

from sluice_operator.api.base import Model
from sluice_operator.api.patterns import OBJECT_NAME


class SecretRef(Model):
    """A Secret in the namespace of the LLMDeployment. The operator never reads it; only the engine pods mount it."""

    name: Annotated[str, Field(max_length=253, pattern=OBJECT_NAME)]
    """name is the name of the Secret."""


class Auth(Model):
    """Access to the model's API. Without it, every client that reaches the Service may call the model, as one tenant."""

    api_keys_secret_ref: SecretRef | None = None
    """apiKeysSecretRef names the Secret with the API keys. Its only entry, keys.yaml, is a list of keys: name, sha256,
    and optionally models, priority, weight, requestsPerMinute and tokensPerMinute; `sluice key new NAME` makes one. A
    change reaches running engines within about a minute, without a restart. Rates hold per replica. Without it no key is
    needed."""
    gateway_token_secret_ref: SecretRef | None = None
    """gatewayTokenSecretRef names the Secret with the token of the gateway, its entry token, at least 16 bytes. A gateway
    that has it verifies the keys itself and names the tenant of each request, so that rates hold for all replicas
    together. Without it engines verify the keys themselves. The Secret is that of the chart's gateway.engineTokenSecret,
    copied into this namespace."""
    tls_secret_ref: SecretRef | None = None
    """tlsSecretRef names a Secret of type kubernetes.io/tls with the certificate of the model's API, e.g. one of
    cert-manager. Clients then use https. A renewed certificate applies to new connections within about a minute, without
    a restart. Without it the API has no TLS."""
