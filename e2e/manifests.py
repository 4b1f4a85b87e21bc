"""The objects of the story: the resource under test, and Jobs in the engine's image under the restricted policy."""

from pathlib import Path
from typing import Any, Final

Object = dict[str, Any]

USER: Final = 65532
PYTHON: Final = "/opt/sluice/bin/python"  # of the engine image's own environment
SLUICE: Final = "/opt/sluice/bin/sluice"
MODELS: Final = "/models"
MODEL: Final = f"{MODELS}/tiny"
REFERENCES: Final = f"{MODELS}/references.json"
PROMPTS: Final = f"{MODELS}/prompts.jsonl"
PROGRAMS: Final = "/programs"
INPOD: Final = Path(__file__).with_name("inpod")

# One engine as an accelerator would be: 30 ms per step, 4 ms more per sequence. Sixteen of them reach the ITL target of
# 100 ms, so a second replica really adds room, while each takes little of a small machine's processor.
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
            "scaling": {"mode": "Auto", "minReplicas": 1, "maxReplicas": 3, "scaleDownStabilizationSeconds": 30},
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
    """The suite's own programs, for Jobs to run."""
    files = {path.name: path.read_text() for path in sorted(INPOD.glob("*.py"))}
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
    """A Job of one pod that never tries again: a second try would hide the first one's fault."""
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
