"""Defines environment variables of the engine container: plain values, and entries of Secrets and ConfigMaps."""

from typing import Annotated, ClassVar

from pydantic import Field

from sluice_operator.api.base import Model, Rule
from sluice_operator.api.patterns import ENV_NAME, OBJECT_NAME, SECRET_KEY


class SecretKeySelector(Model):
    """One entry of a Secret in the namespace of the LLMDeployment. The operator never reads it."""

    name: Annotated[str, Field(min_length=1, max_length=253, pattern=OBJECT_NAME)]
    """name is the name of the Secret."""
    key: Annotated[str, Field(min_length=1, max_length=253, pattern=SECRET_KEY)]
    """key is the name of the entry."""
    optional: bool | None = None
    """optional is true if the pod may start without the Secret or its entry. Defaults to false."""


class ConfigMapKeySelector(Model):
    """One entry of a ConfigMap in the namespace of the LLMDeployment."""

    name: Annotated[str, Field(min_length=1, max_length=253, pattern=OBJECT_NAME)]
    """name is the name of the ConfigMap."""
    key: Annotated[str, Field(min_length=1, max_length=253, pattern=SECRET_KEY)]
    """key is the name of the entry."""
    optional: bool | None = None
    """optional is true if the pod may start without the ConfigMap or its entry. Defaults to false."""


class EnvVarSource(Model):
    """Source of the value of a variable."""

    RULES: ClassVar[tuple[Rule, ...]] = (
        Rule(
            cel="has(self.secretKeyRef) != has(self.configMapKeyRef)",
            sentence="engine.template.env[].valueFrom must set either secretKeyRef or configMapKeyRef",
            holds=lambda s: (s.secret_key_ref is None) != (s.config_map_key_ref is None),
        ),
    )

    secret_key_ref: SecretKeySelector | None = None
    """secretKeyRef selects an entry of a Secret."""
    config_map_key_ref: ConfigMapKeySelector | None = None
    """configMapKeyRef selects an entry of a ConfigMap."""


class EnvVar(Model):
    """EnvVar is an environment variable."""

    RULES: ClassVar[tuple[Rule, ...]] = (
        Rule(
            cel="!has(self.valueFrom) || !has(self.value) || self.value == ''",
            sentence="engine.template.env must not set both value and valueFrom of a variable",
            holds=lambda e: e.value_from is None or not e.value,
        ),
    )

    name: Annotated[str, Field(min_length=1, max_length=253, pattern=ENV_NAME)]
    """name is the name of the variable. HOME, NVIDIA_VISIBLE_DEVICES, CUDA_VISIBLE_DEVICES and SLUICE_* are rejected,
    except SLUICE_METRICS_COMPAT, SLUICE_PACE and SLUICE_THREADS."""
    value: Annotated[str, Field(max_length=4096)] = ""
    """value is the value of the variable. Defaults to the empty string."""
    value_from: EnvVarSource | None = None
    """valueFrom is the source of the value. The value is read when a container starts: a change of the Secret or
    ConfigMap reaches running pods only by a restart."""
