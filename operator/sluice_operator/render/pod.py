"""Builds the engine pod: one container that meets the Pod Security level "restricted" and writes only to emptyDirs."""

from dataclasses import dataclass
from typing import Final

from sluice import contract
from sluice_operator.api import LLMDeployment
from sluice_operator.api.patterns import amount_of
from sluice_operator.cluster.client import Object
from sluice_operator.render import names
from sluice_operator.render.access.auth import secret_mounts, secret_volumes
from sluice_operator.render.engine_args import GIB, claim_of, engine_arguments
from sluice_operator.render.model_source import source_env, source_mounts, source_volumes
from sluice_operator.render.overlay import (
    identity,
    overlay_env,
    overlay_env_from,
    overlay_mounts,
    overlay_volumes,
    placement,
)

HOME: Final = "/home/sluice"
TRITON_CACHE: Final = f"{HOME}/.cache/triton"  # compiled kernels; they outlive the container, not the pod
USER: Final = 65532  # unprivileged and in no image's passwd file; the engine's Dockerfile sets the same
_TRITON_VARIABLE: Final = "TRITON_CACHE_DIR"
_EXIT_SECONDS: Final = 10  # between the end of the drain and the kubelet's SIGKILL
_LOAD_SECONDS: Final = 3600  # maximum load time of a model before the kubelet restarts the container
_STARTUP_PERIOD: Final = 2


@dataclass(frozen=True, slots=True)
class PodDefaults:
    """What the operator's settings say for every engine pod."""

    image: str  # of a resource without spec.engine.image
    user: int | None = USER  # id of user and groups; None: the cluster assigns them, as OpenShift does
    asks_read_token: bool = False  # reads of the admin port need a token


def build_pod_template(resource: LLMDeployment, defaults: PodDefaults, token: str) -> Object:
    """Return the Deployment's pod template. It does not depend on replicas or limits, so scaling causes no rollout."""
    overlay = resource.spec.engine.template
    metadata: Object = {"labels": {**overlay.labels, **names.labels(resource.name)}}
    if overlay.annotations:
        metadata["annotations"] = dict(overlay.annotations)
    return {"metadata": metadata, "spec": _pod_spec(resource, defaults, token)}


def _pod_spec(resource: LLMDeployment, defaults: PodDefaults, token: str) -> Object:
    overlay = resource.spec.engine.template
    return {
        "serviceAccountName": names.service_account(resource.name),
        "automountServiceAccountToken": False,
        "enableServiceLinks": False,  # the engine reads no *_SERVICE_HOST variables
        "terminationGracePeriodSeconds": int(contract.DRAIN_GRACE_SECONDS)
        + resource.spec.rollout.drain_seconds
        + _EXIT_SECONDS,
        "securityContext": {
            "runAsNonRoot": True,
            **identity(overlay, defaults.user),
            "seccompProfile": {"type": "RuntimeDefault"},
        },
        "containers": [_container(resource, defaults)],
        "volumes": _volumes(resource, defaults, token),
        **placement(resource),
    }


def _container(resource: LLMDeployment, defaults: PodDefaults) -> Object:
    container: Object = {
        "name": names.CONTAINER,
        "image": resource.spec.engine.image or defaults.image,
        "args": engine_arguments(resource, asks_read_token=defaults.asks_read_token),
        "env": [
            {"name": "HOME", "value": HOME},
            {"name": contract.ENV_TERMINATION_MESSAGE, "value": contract.TERMINATION_MESSAGE_PATH},
            *_triton_env(resource),
            *source_env(resource.spec.model),
            *overlay_env(resource.spec.engine.template),
        ],
        "ports": [
            {"name": contract.DATA_PORT_NAME, "containerPort": contract.DATA_PORT, "protocol": "TCP"},
            {"name": contract.ADMIN_PORT_NAME, "containerPort": contract.ADMIN_PORT, "protocol": "TCP"},
        ],
        # /livez succeeds from the start and would not detect a load that never ends; /readyz succeeds after the load.
        "startupProbe": _probe(
            contract.PATH_READYZ, period=_STARTUP_PERIOD, failures=_LOAD_SECONDS // _STARTUP_PERIOD, timeout=2
        ),
        "readinessProbe": _probe(contract.PATH_READYZ, period=2, failures=2, timeout=2),
        "livenessProbe": _probe(contract.PATH_LIVEZ, period=10, failures=3, timeout=5),
        "securityContext": {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
        },
        "terminationMessagePath": contract.TERMINATION_MESSAGE_PATH,
        "terminationMessagePolicy": "FallbackToLogsOnError",
        "volumeMounts": _mounts(resource, defaults),
    }
    if env_from := overlay_env_from(resource.spec.engine.template):
        container["envFrom"] = env_from
    if resources := _resources(resource):
        container["resources"] = resources
    return container


def _triton_env(resource: LLMDeployment) -> list[Object]:
    """Where kernels are compiled to, unless the overlay says it."""
    engine = resource.spec.engine
    if not engine.accelerator.count or any(each.name == _TRITON_VARIABLE for each in engine.template.env):
        return []
    return [{"name": _TRITON_VARIABLE, "value": TRITON_CACHE}]


def _probe(path: str, *, period: int, failures: int, timeout: int) -> Object:
    return {
        "httpGet": {"path": path, "port": contract.ADMIN_PORT_NAME},
        "periodSeconds": period,
        "failureThreshold": failures,
        "timeoutSeconds": timeout,
    }


def _resources(resource: LLMDeployment) -> Object:
    engine = resource.spec.engine
    requests: dict[str, str] = dict(engine.resources.requests)
    limits: dict[str, str] = dict(engine.resources.limits)
    if offload := engine.kv_cache.cpu_offload_gib:
        for amounts in (requests, limits):
            if "memory" in amounts:
                amounts["memory"] = str(int(amount_of(amounts["memory"])) + offload * GIB)
    if engine.accelerator.count:  # for an extended resource, request and limit must be equal
        requests[engine.accelerator.resource] = limits[engine.accelerator.resource] = str(engine.accelerator.count)
    return {kind: amounts for kind, amounts in (("requests", requests), ("limits", limits)) if amounts}


def _volumes(resource: LLMDeployment, defaults: PodDefaults, token: str) -> list[Object]:
    secret = names.admin_secret(resource.name, token)
    read = {"name": contract.READ_VOLUME, "secret": {"secretName": names.read_secret(secret), "defaultMode": 0o440}}
    volumes: list[Object] = [
        {"name": contract.ADMIN_VOLUME, "secret": {"secretName": secret, "defaultMode": 0o440}},
        *([read] if defaults.asks_read_token else []),
        {"name": "targets", "configMap": {"name": names.targets(resource.name), "defaultMode": 0o444}},
        {"name": "tmp", "emptyDir": {}},
        {"name": "home", "emptyDir": {}},
        *secret_volumes(resource.spec.auth),
        *source_volumes(resource.spec.model),
    ]
    if claim := claim_of(resource.spec.model.uri):
        # readOnly on the volume too: pods can share the claim, and the kubelet does not chown the model files
        volumes.append({"name": "model", "persistentVolumeClaim": {"claimName": claim, "readOnly": True}})
    return [*volumes, *overlay_volumes(resource.spec.engine)]


def _mounts(resource: LLMDeployment, defaults: PodDefaults) -> list[Object]:
    read = {"name": contract.READ_VOLUME, "mountPath": contract.READ_TOKEN_MOUNT, "readOnly": True}
    mounts: list[Object] = [
        {"name": contract.ADMIN_VOLUME, "mountPath": contract.ADMIN_TOKEN_MOUNT, "readOnly": True},
        *([read] if defaults.asks_read_token else []),
        # The whole directory is mounted: the kubelet never updates a file that is mounted by subPath.
        {"name": "targets", "mountPath": contract.TARGETS_MOUNT, "readOnly": True},
        {"name": "tmp", "mountPath": "/tmp"},  # noqa: S108 - the pod's own emptyDir
        {"name": "home", "mountPath": HOME},
        *secret_mounts(resource.spec.auth),
        *source_mounts(resource.spec.model),
    ]
    if claim_of(resource.spec.model.uri):
        mounts.append({"name": "model", "mountPath": contract.MODEL_MOUNT, "readOnly": True})
    return [*mounts, *overlay_mounts(resource.spec.engine)]
