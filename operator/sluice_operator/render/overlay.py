"""Lays `spec.engine.template` over the engine pod: placement, environment, volumes, and the user and group ids.

What the overlay leaves out is left to the cluster, so a resource without an overlay has the pod that it always had; but
several accelerators get a larger /dev/shm.
"""

from typing import Final

from sluice_operator.api import EngineSpec, LLMDeployment, Template
from sluice_operator.api.base import Model
from sluice_operator.api.template.volumes import Volume, VolumeMount
from sluice_operator.cluster.client import Object
from sluice_operator.render import names

_SHM: Final = "shm"
# The libraries of several accelerators exchange data through it; a container's own has 64 MiB.
_SHARED_SHM_SIZE: Final = "1Gi"
_SHM_FOLDER: Final = "/dev/shm"  # noqa: S108 - the pod's own memory


def placement(resource: LLMDeployment) -> Object:
    """Return the fields of the pod's spec that decide where it runs and from where its image comes."""
    overlay = resource.spec.engine.template
    spec: Object = {}
    if overlay.node_selector:
        spec["nodeSelector"] = dict(overlay.node_selector)
    if overlay.tolerations:
        spec["tolerations"] = [_as_given(each) for each in overlay.tolerations]
    if affinity := _affinity(overlay, resource.name):
        spec["affinity"] = affinity
    if overlay.topology_spread_constraints:
        given = (_as_given(each) for each in overlay.topology_spread_constraints)
        spec["topologySpreadConstraints"] = [{"labelSelector": _own_pods(resource.name), **each} for each in given]
    if overlay.priority_class_name is not None:
        spec["priorityClassName"] = overlay.priority_class_name
    if overlay.runtime_class_name is not None:
        spec["runtimeClassName"] = overlay.runtime_class_name
    if overlay.scheduler_name is not None:
        spec["schedulerName"] = overlay.scheduler_name
    if overlay.image_pull_secrets:
        spec["imagePullSecrets"] = [_as_given(each) for each in overlay.image_pull_secrets]
    return spec


def identity(overlay: Template, default: int | None) -> Object:
    """Return the user and group ids of the pod's security context, and what is done with groups.

    default: the id of a field that the overlay does not set; None leaves the field out, and the cluster assigns an id.
    """
    given = overlay.security_context
    ids: Object = {"runAsUser": default, "runAsGroup": default, "fsGroup": default}
    if given is not None:
        chosen = {"runAsUser": given.run_as_user, "runAsGroup": given.run_as_group, "fsGroup": given.fs_group}
        ids |= {field: value for field, value in chosen.items() if value is not None}
        if given.supplemental_groups:
            ids["supplementalGroups"] = list(given.supplemental_groups)
        ids["supplementalGroupsPolicy"] = given.supplemental_groups_policy
        ids["fsGroupChangePolicy"] = given.fs_group_change_policy
    return {"fsGroupChangePolicy": "OnRootMismatch"} | {name: value for name, value in ids.items() if value is not None}


def overlay_env(overlay: Template) -> list[Object]:
    """Return the variables that the overlay adds to the container."""
    return [
        {"name": each.name, "value": each.value}
        if each.value_from is None
        else {"name": each.name, "valueFrom": _as_given(each.value_from)}
        for each in overlay.env
    ]


def overlay_env_from(overlay: Template) -> list[Object]:
    """Return the Secrets and ConfigMaps whose entries are variables of the container."""
    return [_as_given(each) for each in overlay.env_from]


def shm_size(engine: EngineSpec) -> str | None:
    """Return the size of /dev/shm; None leaves the container's own."""
    shared = _SHARED_SHM_SIZE if engine.accelerator.count > 1 else None
    return engine.template.shm_size or shared


def overlay_volumes(engine: EngineSpec) -> list[Object]:
    """Return the volumes that the overlay adds to the pod."""
    volumes = [_volume(each) for each in engine.template.volumes]
    if (size := shm_size(engine)) is not None:
        volumes.append({"name": _SHM, "emptyDir": {"medium": "Memory", "sizeLimit": size}})
    return volumes


def overlay_mounts(engine: EngineSpec) -> list[Object]:
    """Return the mounts that the overlay adds to the container."""
    overlay = engine.template
    writable = {each.name for each in overlay.volumes if each.empty_dir is not None}
    mounts = [_mount(each, writable) for each in overlay.volume_mounts]
    if shm_size(engine) is not None:
        mounts.append({"name": _SHM, "mountPath": _SHM_FOLDER})
    return mounts


def _volume(volume: Volume) -> Object:
    """A volume. Every field that the API server would fill in is given: server-side apply then owns the whole source,
    and removes it when the volume gets another one."""
    if volume.config_map is not None:
        return {"name": volume.name, "configMap": {"defaultMode": 0o444, **_as_given(volume.config_map)}}
    if volume.secret is not None:
        return {"name": volume.name, "secret": {"defaultMode": 0o440, **_as_given(volume.secret)}}
    if volume.empty_dir is not None:
        return {"name": volume.name, "emptyDir": _as_given(volume.empty_dir)}
    claim = volume.persistent_volume_claim
    if claim is None:
        raise ValueError(f"volume {volume.name} has no source: parse() accepts no such volume")
    return {"name": volume.name, "persistentVolumeClaim": {"claimName": claim.claim_name, "readOnly": True}}


def _mount(mount: VolumeMount, writable: set[str]) -> Object:
    rendered: Object = {"name": mount.name, "mountPath": mount.mount_path}
    if mount.sub_path is not None:
        rendered["subPath"] = mount.sub_path
    if mount.read_only or mount.name not in writable:
        rendered["readOnly"] = True
    if mount.mount_propagation is not None:
        rendered["mountPropagation"] = mount.mount_propagation
    if mount.recursive_read_only is not None:
        rendered["recursiveReadOnly"] = mount.recursive_read_only
    return rendered


def _as_given(part: Model) -> Object:
    """The fields that the user has set, under the names of the pod's."""
    return part.model_dump(by_alias=True, exclude_defaults=True, mode="json")


def _own_pods(name: str) -> Object:
    return {"matchLabels": names.selector(name)}


def _affinity(overlay: Template, name: str) -> Object:
    """The affinity without empty parts, which server-side apply keeps or drops by what was there before. A term on pods
    without a selector selects the resource's own."""
    given = {} if overlay.affinity is None else _as_given(overlay.affinity)
    affinity = {kind: terms for kind, terms in given.items() if terms}
    for kind in affinity.keys() - {"nodeAffinity"}:
        for term in affinity[kind].get("requiredDuringSchedulingIgnoredDuringExecution", ()):
            term.setdefault("labelSelector", _own_pods(name))
        for weighted in affinity[kind].get("preferredDuringSchedulingIgnoredDuringExecution", ()):
            weighted["podAffinityTerm"].setdefault("labelSelector", _own_pods(name))
    return affinity
