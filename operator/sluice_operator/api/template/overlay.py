"""Defines the overlay itself: which fields of a pod it has, and the rules that span them."""

import re
from typing import Annotated, Any, ClassVar, Final

from pydantic import Field

from sluice import contract
from sluice_operator.api.base import Model, Rule
from sluice_operator.api.patterns import LABEL_KEY, MAX_LABEL_KEY, OBJECT_NAME, AnnotationValue, LabelValue, MemorySize
from sluice_operator.api.template.affinity import Affinity
from sluice_operator.api.template.cel import cel_list
from sluice_operator.api.template.env import EnvFromSource, EnvVar
from sluice_operator.api.template.placement import Toleration, TopologySpreadConstraint
from sluice_operator.api.template.refused import Refused
from sluice_operator.api.template.security import SecurityContext
from sluice_operator.api.template.volumes import Volume, VolumeMount

LABEL_PART_OF: Final = "app.kubernetes.io/part-of"
MANAGED_LABELS: Final = (contract.LABEL_NAME, contract.LABEL_INSTANCE, contract.LABEL_MANAGED_BY, LABEL_PART_OF)
MANAGED_ENV: Final = ("HOME", "NVIDIA_VISIBLE_DEVICES", "CUDA_VISIBLE_DEVICES")
# Every option of `sluice serve` can be set as SLUICE_<OPTION>; these have no field in the spec.
OPEN_ENV: Final = (contract.ENV_METRICS_COMPAT, contract.ENV_PACE, contract.ENV_THREADS)
# Annotations of old Kubernetes releases that can disable AppArmor or seccomp for a pod.
_REFUSED_ANNOTATIONS: Final = ("apparmor.security.beta.kubernetes.io", "seccomp.security.alpha.kubernetes.io")
_OWN_PREFIX: Final = f"{contract.GROUP}/"


class LocalObjectReference(Model):
    """An object in the namespace of the LLMDeployment."""

    name: Annotated[str, Field(max_length=253, pattern=OBJECT_NAME)]
    """name is the name of the object."""


def _map_of(*keys: str) -> dict[str, Any]:
    """Return the schema of a list whose entries are told apart by these fields, as server-side apply does."""
    return {"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": list(keys)}


def _keys_match(keys: tuple[str, ...]) -> bool:
    return all(len(key) <= MAX_LABEL_KEY and re.match(LABEL_KEY, key) is not None for key in keys)


def _once(values: list[Any]) -> bool:
    return len(set(values)) == len(values)


def _writes_only_to_empty_dirs(template: Any) -> bool:
    writable = {volume.name for volume in template.volumes if volume.empty_dir is not None}
    return all(mount.read_only is not False or mount.name in writable for mount in template.volume_mounts)


_LABELS: Final = (
    Rule(
        cel=f"!self.labels.exists(k, k in {cel_list(MANAGED_LABELS)} || k.startsWith('{_OWN_PREFIX}'))",
        sentence="engine.template.labels must not set the labels that the operator manages: "
        f"{', '.join(MANAGED_LABELS)}, {_OWN_PREFIX}*",
        holds=lambda t: not any(k in MANAGED_LABELS or k.startswith(_OWN_PREFIX) for k in t.labels),
    ),
    Rule(
        cel=f"!self.annotations.exists(k, k == '{contract.ANNOTATION_DELETION_COST}' "
        f"|| k.startsWith('{_OWN_PREFIX}') || "
        + " || ".join(f"k.contains('{word}')" for word in _REFUSED_ANNOTATIONS)
        + ")",
        sentence="engine.template.annotations must not set what the operator manages "
        f"({contract.ANNOTATION_DELETION_COST}, {_OWN_PREFIX}*) nor AppArmor or seccomp profiles",
        holds=lambda t: (
            not any(
                k == contract.ANNOTATION_DELETION_COST
                or k.startswith(_OWN_PREFIX)
                or any(word in k for word in _REFUSED_ANNOTATIONS)
                for k in t.annotations
            )
        ),
    ),
    Rule(
        cel="("
        + " + ".join(f"self.{field}.map(k, k)" for field in ("labels", "annotations", "nodeSelector"))
        + f").all(k, size(k) <= {MAX_LABEL_KEY} && k.matches('{LABEL_KEY}'))",
        sentence="engine.template.labels, annotations and nodeSelector must have keys such as team or "
        "example.com/team, at most 63 characters after the slash",
        holds=lambda t: _keys_match((*t.labels, *t.annotations, *t.node_selector)),
    ),
)
_ENV: Final = (
    Rule(
        cel=f"!self.env.exists(e, e.name in {cel_list(MANAGED_ENV)} || (e.name.startsWith('{contract.ENV_PREFIX}')"
        f" && !(e.name in {cel_list(OPEN_ENV)})))",
        sentence=f"engine.template.env must not set what the operator manages: {', '.join(MANAGED_ENV)} and "
        f"{contract.ENV_PREFIX}* (but {', '.join(OPEN_ENV)}); use the field of the spec instead",
        holds=lambda t: (
            not any(
                e.name in MANAGED_ENV or (e.name.startswith(contract.ENV_PREFIX) and e.name not in OPEN_ENV)
                for e in t.env
            )
        ),
    ),
    Rule(
        cel="self.env.all(e, self.env.exists_one(other, other.name == e.name))",
        sentence="engine.template.env must name each variable once",
        holds=lambda t: _once([e.name for e in t.env]),
    ),
)
_ENV_FROM: Final = (
    Rule(
        cel=f"self.envFrom.all(e, !e.prefix.startsWith('{contract.ENV_PREFIX}') && "
        f"!{cel_list((*MANAGED_ENV, contract.ENV_PREFIX))}.exists(name, name.startsWith(e.prefix)))",
        sentence="engine.template.envFrom must have prefixes with which no entry is a variable that the operator manages: "
        f"{', '.join(MANAGED_ENV)} and {contract.ENV_PREFIX}*",
        holds=lambda t: (
            not any(
                e.prefix.startswith(contract.ENV_PREFIX)
                or any(name.startswith(e.prefix) for name in (*MANAGED_ENV, contract.ENV_PREFIX))
                for e in t.env_from
            )
        ),
    ),
)
_VOLUMES: Final = (
    Rule(
        cel="self.volumes.all(v, self.volumes.exists_one(other, other.name == v.name))",
        sentence="engine.template.volumes must name each volume once",
        holds=lambda t: _once([v.name for v in t.volumes]),
    ),
    Rule(
        cel="self.volumeMounts.all(m, self.volumeMounts.exists_one(other, other.mountPath == m.mountPath))",
        sentence="engine.template.volumeMounts must use each mountPath once",
        holds=lambda t: _once([m.mount_path for m in t.volume_mounts]),
    ),
    Rule(
        cel="self.volumeMounts.all(m, self.volumes.exists(v, v.name == m.name))",
        sentence="engine.template.volumeMounts must name volumes of engine.template.volumes",
        holds=lambda t: {m.name for m in t.volume_mounts} <= {v.name for v in t.volumes},
    ),
    Rule(
        cel="self.volumeMounts.all(m, !has(m.readOnly) || m.readOnly || "
        "self.volumes.all(v, v.name != m.name || has(v.emptyDir)))",
        sentence="engine.template.volumeMounts must not set readOnly: false for another volume than an emptyDir",
        holds=_writes_only_to_empty_dirs,
    ),
)
_PLACEMENT: Final = (
    Rule(
        cel="self.topologySpreadConstraints.all(c, self.topologySpreadConstraints.exists_one(other, "
        "other.topologyKey == c.topologyKey && other.whenUnsatisfiable == c.whenUnsatisfiable))",
        sentence="engine.template.topologySpreadConstraints must have each topologyKey once per whenUnsatisfiable",
        holds=lambda t: _once([(c.topology_key, c.when_unsatisfiable) for c in t.topology_spread_constraints]),
    ),
    Rule(
        cel="self.imagePullSecrets.all(s, self.imagePullSecrets.exists_one(other, other.name == s.name))",
        sentence="engine.template.imagePullSecrets must name each Secret once",
        holds=lambda t: _once([s.name for s in t.image_pull_secrets]),
    ),
    Rule(
        cel="!has(self.priorityClassName) || !self.priorityClassName.startsWith('system-')",
        sentence="engine.template.priorityClassName must not name a system- class: these are for pods that a node or the "
        "cluster cannot run without",
        holds=lambda t: not (t.priority_class_name or "").startswith("system-"),
    ),
)
_ISOLATION: Final = (
    Rule(
        cel="!self.hostNetwork && !self.hostPID && !self.hostIPC",
        sentence="engine.template must not set hostNetwork, hostPID or hostIPC to true: the pod would share the network "
        "or the processes of its node",
        holds=lambda t: not (t.host_network or t.host_pid or t.host_ipc),
    ),
    Rule(
        cel="size(self.containers) == 0 && size(self.initContainers) == 0",
        sentence="engine.template must not have containers or initContainers: the engine pod has one container; run "
        "another program in a Deployment of its own, or inject a sidecar by an admission webhook",
        holds=lambda t: not t.containers and not t.init_containers,
    ),
)


class Template(Model):
    """Overlay on the engine pod, with the field names of a pod. It cannot lower the security of the pod."""

    RULES: ClassVar[tuple[Rule, ...]] = (*_LABELS, *_ENV, *_ENV_FROM, *_VOLUMES, *_PLACEMENT, *_ISOLATION)

    labels: dict[str, LabelValue] = Field(default={}, max_length=32)
    """labels are added to the labels of the pod."""
    annotations: dict[str, AnnotationValue] = Field(default={}, max_length=32)
    """annotations are added to the annotations of the pod."""
    node_selector: dict[str, LabelValue] = Field(default={}, max_length=32)
    """nodeSelector is the set of labels that a node must have to run the pod."""
    tolerations: Annotated[tuple[Toleration, ...], Field(max_length=32)] = ()
    """tolerations are the taints that the pod tolerates."""
    affinity: Affinity | None = None
    """affinity selects and prefers nodes by their labels and by the pods that they run."""
    topology_spread_constraints: Annotated[
        tuple[TopologySpreadConstraint, ...],
        Field(max_length=8, json_schema_extra=_map_of("topologyKey", "whenUnsatisfiable")),
    ] = ()
    """topologySpreadConstraints spread the pods over nodes, zones or other domains."""
    priority_class_name: Annotated[str, Field(max_length=253, pattern=OBJECT_NAME)] | None = None
    """priorityClassName is the PriorityClass of the pod. Classes that begin with system- are rejected."""
    runtime_class_name: Annotated[str, Field(max_length=253, pattern=OBJECT_NAME)] | None = None
    """runtimeClassName is the RuntimeClass of the pod, e.g. nvidia or gvisor."""
    scheduler_name: Annotated[str, Field(max_length=253, pattern=OBJECT_NAME)] | None = None
    """schedulerName is the scheduler of the pod. Defaults to the cluster's."""
    image_pull_secrets: Annotated[
        tuple[LocalObjectReference, ...], Field(max_length=16, json_schema_extra=_map_of("name"))
    ] = ()
    """imagePullSecrets are Secrets with the credentials of the registry of the image."""
    env: Annotated[tuple[EnvVar, ...], Field(max_length=64, json_schema_extra=_map_of("name"))] = ()
    """env is the list of environment variables added to the engine container."""
    env_from: Annotated[tuple[EnvFromSource, ...], Field(max_length=16)] = ()
    """envFrom adds all entries of Secrets and ConfigMaps as variables, each with a prefix. env has precedence."""
    volumes: Annotated[tuple[Volume, ...], Field(max_length=16, json_schema_extra=_map_of("name"))] = ()
    """volumes are added to the pod: configMap, secret, emptyDir or persistentVolumeClaim."""
    volume_mounts: Annotated[tuple[VolumeMount, ...], Field(max_length=16, json_schema_extra=_map_of("mountPath"))] = ()
    """volumeMounts mount these volumes into the engine container."""
    shm_size: MemorySize | None = None
    """shmSize is the size of /dev/shm, e.g. 1Gi. What it holds counts towards the memory limit of the container.
    Defaults to 1Gi for several accelerators, else to what the container runtime has, 64 MiB as a rule."""
    security_context: SecurityContext | None = None
    """securityContext defines the user and the groups of the pod."""
    host_network: bool = False
    """hostNetwork is false: true is rejected."""
    host_pid: Annotated[bool, Field(alias="hostPID")] = False
    """hostPID is false: true is rejected."""
    host_ipc: Annotated[bool, Field(alias="hostIPC")] = False
    """hostIPC is false: true is rejected."""
    containers: Annotated[tuple[Refused, ...], Field(max_length=16)] = ()
    """containers is empty: the engine pod has one container."""
    init_containers: Annotated[tuple[Refused, ...], Field(max_length=16)] = ()
    """initContainers is empty: the engine pod has one container."""
