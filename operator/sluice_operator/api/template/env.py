"""Defines environment variables of the engine container: plain values, entries of Secrets and ConfigMaps, and fields
of the pod."""

from typing import Annotated, ClassVar, Final, Literal

from pydantic import Field

from sluice_operator.api.base import Model, Rule
from sluice_operator.api.patterns import ENV_NAME, FIELD_PATH, OBJECT_NAME, SECRET_KEY

_SOURCES: Final = ("secretKeyRef", "configMapKeyRef", "fieldRef", "resourceFieldRef")


class SecretKeySelector(Model):
    """One entry of a Secret in the namespace of the LLMDeployment. The operator never reads it."""

    name: Annotated[str, Field(max_length=253, pattern=OBJECT_NAME)]
    """name is the name of the Secret."""
    key: Annotated[str, Field(max_length=253, pattern=SECRET_KEY)]
    """key is the name of the entry."""
    optional: bool | None = None
    """optional is true if the pod may start without the Secret or its entry. Defaults to false."""


class ConfigMapKeySelector(Model):
    """One entry of a ConfigMap in the namespace of the LLMDeployment."""

    name: Annotated[str, Field(max_length=253, pattern=OBJECT_NAME)]
    """name is the name of the ConfigMap."""
    key: Annotated[str, Field(max_length=253, pattern=SECRET_KEY)]
    """key is the name of the entry."""
    optional: bool | None = None
    """optional is true if the pod may start without the ConfigMap or its entry. Defaults to false."""


class ObjectFieldSelector(Model):
    """A field of the pod itself."""

    field_path: Annotated[str, Field(max_length=300, pattern=FIELD_PATH)]
    """fieldPath is metadata.name, .namespace, .uid, .labels['KEY'], .annotations['KEY'], spec.nodeName,
    .serviceAccountName, status.hostIP, .hostIPs, .podIP or .podIPs."""
    api_version: Literal["v1"] | None = None
    """apiVersion is v1."""


class ResourceFieldSelector(Model):
    """A request or limit of the engine container."""

    RULES: ClassVar[tuple[Rule, ...]] = (
        Rule(
            cel="!has(self.divisor) || self.divisor == '1' || (self.divisor == '1m') == self.resource.endsWith('.cpu')",
            sentence="engine.template.env[].valueFrom.resourceFieldRef must have the divisor 1 or 1m for cpu, and 1 or a "
            "unit of bytes for memory and ephemeral-storage",
            holds=lambda r: r.divisor in (None, "1") or (r.divisor == "1m") == r.resource.endswith(".cpu"),
        ),
    )

    resource: Literal[
        "limits.cpu",
        "limits.memory",
        "limits.ephemeral-storage",
        "requests.cpu",
        "requests.memory",
        "requests.ephemeral-storage",
    ]
    """resource is the request or limit."""
    divisor: Literal["1", "1m", "1k", "1M", "1G", "1T", "1Ki", "1Mi", "1Gi", "1Ti"] | None = None
    """divisor is the unit of the value, which is rounded up. Defaults to 1."""
    container_name: Literal["engine"] | None = None
    """containerName is engine."""


class EnvVarSource(Model):
    """Source of the value of a variable."""

    RULES: ClassVar[tuple[Rule, ...]] = (
        Rule(
            cel="[" + ", ".join(f"has(self.{source})" for source in _SOURCES) + "].exists_one(given, given)",
            sentence="engine.template.env[].valueFrom must set one of secretKeyRef, configMapKeyRef, fieldRef and "
            "resourceFieldRef",
            holds=lambda s: (
                [s.secret_key_ref, s.config_map_key_ref, s.field_ref, s.resource_field_ref].count(None)
                == len(_SOURCES) - 1
            ),
        ),
    )

    secret_key_ref: SecretKeySelector | None = None
    """secretKeyRef selects an entry of a Secret."""
    config_map_key_ref: ConfigMapKeySelector | None = None
    """configMapKeyRef selects an entry of a ConfigMap."""
    field_ref: ObjectFieldSelector | None = None
    """fieldRef selects a field of the pod."""
    resource_field_ref: ResourceFieldSelector | None = None
    """resourceFieldRef selects a request or limit of the engine container."""


class EnvSource(Model):
    """A Secret or ConfigMap in the namespace of the LLMDeployment. The operator never reads it."""

    name: Annotated[str, Field(max_length=253, pattern=OBJECT_NAME)]
    """name is the name of the object."""
    optional: bool | None = None
    """optional is true if the pod may start without it. Defaults to false."""


class EnvFromSource(Model):
    """All entries of a Secret or ConfigMap as variables."""

    RULES: ClassVar[tuple[Rule, ...]] = (
        Rule(
            cel="has(self.secretRef) != has(self.configMapRef)",
            sentence="engine.template.envFrom must set either secretRef or configMapRef each",
            holds=lambda s: (s.secret_ref is None) != (s.config_map_ref is None),
        ),
    )

    prefix: Annotated[str, Field(max_length=253, pattern=ENV_NAME)]
    """prefix is put before the name of each entry, so that no entry is a variable which the operator manages."""
    secret_ref: EnvSource | None = None
    """secretRef is the Secret."""
    config_map_ref: EnvSource | None = None
    """configMapRef is the ConfigMap."""


class EnvVar(Model):
    """EnvVar is an environment variable."""

    RULES: ClassVar[tuple[Rule, ...]] = (
        Rule(
            cel="!has(self.valueFrom) || !has(self.value) || self.value == ''",
            sentence="engine.template.env must not set both value and valueFrom of a variable",
            holds=lambda e: e.value_from is None or not e.value,
        ),
    )

    name: Annotated[str, Field(max_length=253, pattern=ENV_NAME)]
    """name is the name of the variable. HOME, NVIDIA_VISIBLE_DEVICES, CUDA_VISIBLE_DEVICES and SLUICE_* are rejected,
    except SLUICE_METRICS_COMPAT, SLUICE_PACE and SLUICE_THREADS."""
    value: Annotated[str, Field(max_length=4096)] = ""
    """value is the value of the variable. Defaults to the empty string."""
    value_from: EnvVarSource | None = None
    """valueFrom is the source of the value. The value is read when a container starts: a change of the Secret or
    ConfigMap reaches running pods only by a restart."""
