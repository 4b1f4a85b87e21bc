"""Defines the part of the pod's security that can be chosen: ids. The rest can only repeat what the pod has anyway."""

from typing import Annotated, ClassVar, Literal

from pydantic import Field

from sluice_operator.api.base import Model, Rule
from sluice_operator.api.template.refused import Refused

# 0 is root, or the group of root. Kubernetes takes no more than an int32.
Identity = Annotated[int, Field(ge=1, le=2_147_483_647)]

Capability = Annotated[str, Field(max_length=64)]


class Capabilities(Model):
    """Capabilities of the engine container."""

    add: Annotated[tuple[Capability, ...], Field(max_length=64)] = ()
    """Nothing."""
    drop: Annotated[tuple[Capability, ...], Field(max_length=64)] = ()
    """Anything: all are dropped."""


class SeccompProfile(Model):
    """Filter of the system calls."""

    type: Literal["RuntimeDefault"]
    """RuntimeDefault."""


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
        Rule(
            cel="!has(self.appArmorProfile) && !has(self.seLinuxOptions) && size(self.sysctls) == 0 && "
            "(!has(self.capabilities) || size(self.capabilities.add) == 0)",
            sentence="engine.template.securityContext must not set appArmorProfile, seLinuxOptions or sysctls, nor add "
            "capabilities: the pod has the profiles of the container runtime, and no capability",
            holds=lambda s: (
                s.app_armor_profile is None
                and s.se_linux_options is None
                and not s.sysctls
                and (s.capabilities is None or not s.capabilities.add)
            ),
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
    supplemental_groups_policy: Literal["Merge", "Strict"] | None = None
    """supplementalGroupsPolicy is Strict if the groups that the image gives the user do not count (Kubernetes 1.31)."""
    fs_group_change_policy: Literal["OnRootMismatch", "Always"] | None = None
    """fsGroupChangePolicy is when mounted files are given to fsGroup. Defaults to OnRootMismatch."""
    run_as_non_root: bool | None = None
    """runAsNonRoot is true in any case; false is rejected."""
    privileged: bool | None = None
    """privileged is false in any case; true is rejected."""
    allow_privilege_escalation: bool | None = None
    """allowPrivilegeEscalation is false in any case; true is rejected."""
    read_only_root_filesystem: bool | None = None
    """readOnlyRootFilesystem is true in any case; false is rejected."""
    capabilities: Capabilities | None = None
    """capabilities are none in any case; add is rejected."""
    seccomp_profile: SeccompProfile | None = None
    """seccompProfile is RuntimeDefault in any case."""
    proc_mount: Literal["Default"] | None = None
    """procMount is Default in any case."""
    app_armor_profile: Refused | None = None
    """appArmorProfile is rejected."""
    se_linux_options: Refused | None = None
    """seLinuxOptions is rejected."""
    sysctls: Annotated[tuple[Refused, ...], Field(max_length=16)] = ()
    """sysctls is empty."""
