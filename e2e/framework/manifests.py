"""The manifests of the suite: the resource under test, and Jobs in the engine's image under the restricted policy."""

from pathlib import Path
from typing import Any, Final

from sluice import contract

Object = dict[str, Any]

USER: Final = 65532
PYTHON: Final = "/opt/sluice/bin/python"  # of the engine image's environment
SLUICE: Final = "/opt/sluice/bin/sluice"
MODELS: Final = "/models"
MODEL: Final = f"{MODELS}/tiny"
REFERENCES: Final = f"{MODELS}/references.json"
PROMPTS: Final = f"{MODELS}/prompts.jsonl"
PROGRAMS: Final = "/programs"
INPOD: Final = Path(__file__).parents[1] / "inpod"
HUB_SERVER: Final = Path(__file__).parents[2] / "tests/hub_server.py"
SOAK: Final = Path(__file__).parents[2] / "tests/soak"
SOAK_MODULES: Final = ("churn.py", "rounds.py")  # of this folder, which inpod/soak.py imports

# Emulates an accelerator: 30 ms per step, 4 ms more per sequence. Sixteen sequences reach the ITL target of 100 ms, so
# a second replica adds real capacity, while each engine needs little CPU time of a small machine.
PACE: Final = "base=0.03,sequence=0.004,prefill_token=0.0002,kv_token=2e-6"


def llm_deployment(name: str, **spec: Any) -> Object:
    """An LLMDeployment of the tiny model on CPU; `spec` replaces whole top-level fields."""
    return {
        "apiVersion": "sluice.dev/v1alpha1",
        "kind": "LLMDeployment",
        "metadata": {"name": name},
        "spec": {
            "model": {"uri": "pvc://models/tiny", "servedName": name, "dtype": "float32"},
            "engine": engine(),
            "slo": {"ttftMilliseconds": 2000, "itlMilliseconds": 100},
            "scaling": {
                "mode": "Auto",
                "minReplicas": 1,
                "maxReplicas": 3,
                "scaleDownStabilizationSeconds": 30,
                "burstMemorySeconds": 60,
            },
            "rollout": {"drainSeconds": 120},
        }
        | spec,
    }


def engine(**changes: Any) -> Object:
    """spec.engine for a small machine; `changes` replaces whole fields."""
    return {
        "accelerator": {"count": 0},
        "kvCache": {"size": "64Mi"},
        "scheduling": {"maxNumSeqs": 64, "maxBatchedTokens": 512},
        "resources": {"requests": {"cpu": "100m", "memory": "512Mi"}, "limits": {"memory": "1536Mi"}},
        "template": {"env": [{"name": "SLUICE_PACE", "value": PACE}, {"name": "SLUICE_THREADS", "value": "1"}]},
    } | changes


def programs() -> Object:
    """A ConfigMap with the suite's programs for Jobs."""
    modules = [SOAK / name for name in SOAK_MODULES]
    files = {path.name: path.read_text() for path in (*sorted(INPOD.glob("*.py")), HUB_SERVER, *modules)}
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "programs"}, "data": files}


def job(
    name: str,
    image: str,
    command: list[str],
    *,
    volumes: list[Object],
    mounts: list[Object],
    root: bool = False,
    memory: str = "2Gi",
) -> Object:
    """A Job of one pod without retries: a second attempt would hide the fault of the first."""
    user = 0 if root else USER
    container: Object = {
        "name": "job",
        "image": image,
        "command": command,
        "env": [{"name": "HOME", "value": "/tmp"}, {"name": "OMP_NUM_THREADS", "value": "2"}],
        "resources": {"requests": {"cpu": "50m", "memory": "256Mi"}, "limits": {"memory": memory}},
        "volumeMounts": [*mounts, {"name": "tmp", "mountPath": "/tmp"}],
        "securityContext": {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "runAsNonRoot": not root,
            "runAsUser": user,
            "capabilities": {"drop": ["ALL"]} | ({"add": ["CHOWN"]} if root else {}),
            "seccompProfile": {"type": "RuntimeDefault"},
        },
    }
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": name},
        "spec": {
            "backoffLimit": 0,
            "template": {
                "spec": {
                    "restartPolicy": "Never",
                    "automountServiceAccountToken": False,
                    "containers": [container],
                    "volumes": [*volumes, {"name": "tmp", "emptyDir": {}}],
                }
            },
        },
    }


def soak_volume() -> Object:
    """A volume of an engine's pod with inpod/soak.py and the modules that it imports."""
    items = [{"key": "soak.py", "path": "soak.py"}]
    items += [{"key": name, "path": f"tests/soak/{name}"} for name in SOAK_MODULES]
    return {"name": "soak", "configMap": {"name": "programs", "items": items}}


def soak_container(image: str, beside: str, *options: str) -> Object:
    """An ephemeral container of a pod with that volume: it runs inpod/soak.py and sees the processes of `beside`."""
    made = job("soak", image, [PYTHON, f"{PROGRAMS}/soak.py", *options], volumes=[], mounts=[])
    [container] = made["spec"]["template"]["spec"]["containers"]
    del container["resources"]  # which such a container must not have
    mounts = [{"name": "soak", "mountPath": PROGRAMS, "readOnly": True}]
    return container | {"name": "soak", "targetContainerName": beside, "volumeMounts": mounts}


def foreign_pod(name: str, instance: str, image: str, does: str) -> Object:
    """A standalone pod with the labels of an LLMDeployment's engines, which runs inpod/foreign.py with `does`."""
    manifest = program_pod(name, image, "foreign.py", does)
    manifest["metadata"]["labels"] = {contract.LABEL_NAME: contract.ENGINE_APP, contract.LABEL_INSTANCE: instance}
    if does == "serve":
        probe = {"httpGet": {"path": contract.PATH_READYZ, "port": contract.ADMIN_PORT}}
        manifest["spec"]["containers"][0]["readinessProbe"] = probe
    return manifest


def idle_pod(name: str, image: str) -> Object:
    """A pod without volumes of the suite, for any namespace, that does nothing until it is deleted."""
    idle = job(name, image, [PYTHON, "-c", "import time; time.sleep(3600)"], volumes=[], mounts=[])
    spec = idle["spec"]["template"]["spec"] | {"terminationGracePeriodSeconds": 1}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": spec}


def program_pod(name: str, image: str, program: str, *arguments: str) -> Object:
    """A pod that runs one of the suite's programs until it is deleted."""
    job = client_job(name, image, [PYTHON, f"{PROGRAMS}/{program}", *arguments])
    spec = job["spec"]["template"]["spec"] | {"restartPolicy": "Always", "terminationGracePeriodSeconds": 1}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": spec}


def client_job(name: str, image: str, command: list[str], *, writable: bool = False, memory: str = "1Gi") -> Object:
    """A Job with the model's volume and the suite's programs."""
    return job(
        name,
        image,
        command,
        volumes=[
            {"name": "models", "persistentVolumeClaim": {"claimName": "models", "readOnly": not writable}},
            {"name": "programs", "configMap": {"name": "programs"}},
        ],
        mounts=[
            {"name": "models", "mountPath": MODELS, "readOnly": not writable},
            {"name": "programs", "mountPath": PROGRAMS, "readOnly": True},
        ],
        memory=memory,
    )
