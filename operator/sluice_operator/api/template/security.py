"""Defines the part of the pod's security that can be chosen: ids. The rest can only repeat what the pod has anyway."""

from typing import Annotated, ClassVar

from pydantic import Field

from sluice_operator.api.base import Model, Rule

# 0 is root, or the group of root.
Identity = Annotated[int, Field(ge=1, le=4_294_967_294)]


class SecurityContext(Model):
    """User and groups of the pod. Fields that would lower its security accept only what the pod has without them."""

    RULES: ClassVar[tuple[Rule, ...]] = (
        Rule(
            cel="(!has(self.privileged) || !self.privileged) && "
            "(!has(self.allowPrivilegeEscalation) || !self.allowPrivilegeEscalation)",
            sentence="engine.template.securityContext must not set privileged or allowPrivilegeEscalation to true: the "
            "engine needs neither, a GPU comes from its device plugin",
            holds=lambda s: not s.privileged and not s.allow_privilege_escalation,
        ),
        Rule(
            cel="!has(self.readOnlyRootFilesystem) || self.readOnlyRootFilesystem",
            sentence="engine.template.securityContext must not set readOnlyRootFilesystem to false: mount an emptyDir "
            "where files are written",
            holds=lambda s: s.read_only_root_filesystem is not False,
        ),
        Rule(
            cel="!has(self.runAsNonRoot) || self.runAsNonRoot",
            sentence="engine.template.securityContext must not set runAsNonRoot to false: engines do not run as root",
            holds=lambda s: s.run_as_non_root is not False,
        ),
    )

    run_as_user: Identity | None = None
    """runAsUser is the user id of the engine. Defaults to 65532, or to what the cluster assigns (the chart's podIds)."""
    run_as_group: Identity | None = None
    """runAsGroup is the group id of the engine. Defaults as runAsUser does."""
    fs_group: Identity | None = None
    """fsGroup is the group that owns mounted files. Defaults as runAsUser does."""
    supplemental_groups: Annotated[tuple[Identity, ...], Field(max_length=16)] = ()
    """supplementalGroups are further groups of the engine, e.g. that of the files of a shared volume."""
    run_as_non_root: bool | None = None
    """runAsNonRoot is true with or without this field; false is rejected."""
    privileged: bool | None = None
    """privileged is false with or without this field; true is rejected."""
    allow_privilege_escalation: bool | None = None
    """allowPrivilegeEscalation is false with or without this field; true is rejected."""
    read_only_root_filesystem: bool | None = None
    """readOnlyRootFilesystem is true with or without this field; false is rejected."""


class Container(Model):
    """Container is a container of the pod, which is rejected."""

    name: Annotated[str, Field(max_length=63)]
    """name is the name of the container."""
