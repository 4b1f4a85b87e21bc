"""Defines extra volumes of the engine pod and where they are mounted: ConfigMaps, Secrets and claims read-only."""

from typing import Annotated, Any, ClassVar, Final, Literal

from pydantic import Field

from sluice import contract
from sluice_operator.api.base import Model, Rule
from sluice_operator.api.patterns import MOUNT_PATH, OBJECT_NAME, RELATIVE_PATH, SECRET_KEY, VOLUME_NAME, MemorySize
from sluice_operator.api.template.cel import cel_list
from sluice_operator.api.template.refused import Refused

# Volumes that render/ adds to the pod; tests compare the list with the rendered pods.
MANAGED_VOLUMES: Final = (
    "admin-token",
    contract.READ_VOLUME,
    "targets",
    "tmp",
    "home",
    "model",
    "api-keys",
    "tls",
    "source-token",
    "source-credentials",
    "model-cache",
    "shm",
)
# Folders that the engine, the container runtime or the image's programs need as they are.
MANAGED_FOLDERS: Final = (
    "/etc/sluice",
    "/home/sluice",
    "/opt/sluice",
    "/tmp",  # noqa: S108 - the pod's own emptyDir
    contract.MODEL_MOUNT,
    contract.CACHE_MOUNT,
    "/dev",
    "/proc",
    "/sys",
    "/run",
    "/var/run",
    "/usr",
    "/bin",
    "/sbin",
    "/lib",
    "/lib64",
)
_SOURCES: Final = ("configMap", "secret", "emptyDir", "persistentVolumeClaim", "hostPath", "projected")


Mode = Annotated[int, Field(ge=0, le=0o777)]


class KeyToPath(Model):
    """One entry that becomes a file."""

    key: Annotated[str, Field(max_length=253, pattern=SECRET_KEY)]
    """key is the name of the entry."""
    path: Annotated[str, Field(max_length=1024, pattern=RELATIVE_PATH)]
    """path is the path of the file below the folder of the mount."""
    mode: Mode | None = None
    """mode is the mode of the file. Defaults to defaultMode."""


Items = Annotated[tuple[KeyToPath, ...], Field(max_length=32)]


class ConfigMapVolumeSource(Model):
    """A ConfigMap in the namespace of the LLMDeployment."""

    name: Annotated[str, Field(max_length=253, pattern=OBJECT_NAME)]
    """name is the name of the ConfigMap."""
    items: Items = ()
    """items are the entries to mount. Defaults to all."""
    optional: bool | None = None
    """optional is true if the pod may start without the ConfigMap or an entry. Defaults to false."""
    default_mode: Mode | None = None
    """defaultMode is the mode of the files, e.g. 0440. Defaults to 0444."""


class SecretVolumeSource(Model):
    """A Secret in the namespace of the LLMDeployment. The operator never reads it."""

    secret_name: Annotated[str, Field(max_length=253, pattern=OBJECT_NAME)]
    """secretName is the name of the Secret."""
    items: Items = ()
    """items are the entries to mount. Defaults to all."""
    optional: bool | None = None
    """optional is true if the pod may start without the Secret or an entry. Defaults to false."""
    default_mode: Mode | None = None
    """defaultMode is the mode of the files, e.g. 0400. Defaults to 0440."""


class EmptyDirVolumeSource(Model):
    """A folder that begins empty and ends with the pod."""

    medium: Literal["Memory"] | None = None
    """medium is Memory for a folder in memory, which counts towards the memory limit. Defaults to the node's disk."""
    size_limit: MemorySize | None = None
    """sizeLimit is the size above which the pod is evicted, e.g. 1Gi. Defaults to none."""


class PersistentVolumeClaimVolumeSource(Model):
    """A PersistentVolumeClaim in the namespace of the LLMDeployment, mounted read-only."""

    RULES: ClassVar[tuple[Rule, ...]] = (
        Rule(
            cel="self.readOnly",
            sentence="engine.template.volumes must not set readOnly: false for a persistentVolumeClaim: engines share "
            "it; model.cache.claim is the claim that they write to",
            holds=lambda c: c.read_only,
        ),
    )

    claim_name: Annotated[str, Field(max_length=253, pattern=OBJECT_NAME)]
    """claimName is the name of the claim."""
    read_only: bool = True
    """readOnly is true: no other value is accepted."""


class Volume(Model):
    """Volume is a volume of the pod, with one source."""

    RULES: ClassVar[tuple[Rule, ...]] = (
        Rule(
            cel="!has(self.hostPath) && !has(self.projected)",
            sentence="engine.template.volumes must not use hostPath, which gives the pod files of the node, nor projected, "
            "which gives it tokens: use configMap, secret, emptyDir or persistentVolumeClaim",
            holds=lambda v: v.host_path is None and v.projected is None,
        ),
        Rule(
            cel="[" + ", ".join(f"has(self.{source})" for source in _SOURCES) + "].exists_one(given, given)",
            sentence="engine.template.volumes must set one of configMap, secret, emptyDir and persistentVolumeClaim each",
            holds=lambda v: sum(source is not None for source in v.sources) == 1,
        ),
        Rule(
            cel=f"!(self.name in {cel_list(MANAGED_VOLUMES)})",
            sentence="engine.template.volumes must not have the name of a volume that the operator manages: "
            f"{', '.join(MANAGED_VOLUMES)}",
            holds=lambda v: v.name not in MANAGED_VOLUMES,
        ),
    )

    name: Annotated[str, Field(max_length=63, pattern=VOLUME_NAME)]
    """name is the name that volumeMounts refer to."""
    config_map: ConfigMapVolumeSource | None = None
    """configMap mounts the entries of a ConfigMap as files."""
    secret: SecretVolumeSource | None = None
    """secret mounts the entries of a Secret as files."""
    empty_dir: EmptyDirVolumeSource | None = None
    """emptyDir is a folder that begins empty and ends with the pod."""
    persistent_volume_claim: PersistentVolumeClaimVolumeSource | None = None
    """persistentVolumeClaim mounts a claim read-only."""
    host_path: Refused | None = None
    """hostPath is rejected."""
    projected: Refused | None = None
    """projected is rejected."""

    @property
    def sources(self) -> tuple[Any, ...]:
        """Return the possible sources, of which exactly one is not None."""
        return (
            self.config_map,
            self.secret,
            self.empty_dir,
            self.persistent_volume_claim,
            self.host_path,
            self.projected,
        )


def _covers_no_managed_folder(mount: Any) -> bool:
    path = mount.mount_path
    return not any(
        path == folder or path.startswith(f"{folder}/") or folder.startswith(f"{path}/") for folder in MANAGED_FOLDERS
    )


class VolumeMount(Model):
    """VolumeMount mounts a volume of engine.template.volumes into the engine container."""

    RULES: ClassVar[tuple[Rule, ...]] = (
        Rule(
            cel=f"!{cel_list(MANAGED_FOLDERS)}.exists(folder, self.mountPath == folder || "
            "self.mountPath.startsWith(folder + '/') || folder.startsWith(self.mountPath + '/'))",
            sentence="engine.template.volumeMounts must not cover or enter a folder of the engine or the system: use "
            "another one, such as /mnt/extra, and shmSize for /dev/shm",
            holds=_covers_no_managed_folder,
        ),
        Rule(
            cel="!has(self.subPathExpr)",
            sentence="engine.template.volumeMounts must not have subPathExpr, whose path depends on variables: use subPath",
            holds=lambda m: m.sub_path_expr is None,
        ),
    )

    name: Annotated[str, Field(max_length=63, pattern=VOLUME_NAME)]
    """name is the name of a volume of engine.template.volumes."""
    mount_path: Annotated[str, Field(max_length=1024, pattern=MOUNT_PATH)]
    """mountPath is the folder in the container, e.g. /mnt/extra."""
    sub_path: Annotated[str, Field(max_length=1024, pattern=RELATIVE_PATH)] | None = None
    """subPath is the path in the volume to mount. Changes of a Secret or ConfigMap do not reach such a mount."""
    read_only: bool | None = None
    """readOnly is true if the container must not write. Only an emptyDir may be written to. Defaults to true for other
    volumes, and to false for an emptyDir."""
    sub_path_expr: Annotated[str, Field(max_length=1024)] | None = None
    """subPathExpr is rejected."""
    mount_propagation: Literal["None"] | None = None
    """mountPropagation is None: mounts of the node do not reach the container, nor its own the node."""
    recursive_read_only: Literal["Disabled"] | None = None
    """recursiveReadOnly is Disabled: no volume of the overlay has further mounts inside."""
