"""A real HorizontalPodAutoscaler moves a model to another count and back: by an external metric, /scale, and the operator."""

import asyncio
import json
import subprocess
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import yaml
from kubernetes.aio.client import ApiClient, Configuration

from sluice_kube.api import config
from sluice_operator.cluster.client import Key
from sluice_operator.cluster.kube import KubeClient
from sluice_operator.reconcile.context import Context
from sluice_operator.reconcile.reconciler import Reconciler
from sluice_operator.settings import Settings
from tests.ecosystem.control_plane import ControlPlane, running
from tests.ecosystem.external_metrics import ExternalMetrics, serving
from tests.operator.fake_cluster import KEY_OF_OPERATOR, Engines, manifest

ROOT = Path(__file__).parents[2]
KEY = Key("default", "chat")
CHANGED_WITHIN = 120.0  # seconds


@pytest.fixture(scope="module")
def control(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ControlPlane]:
    with running(tmp_path_factory.mktemp("control-plane")) as found:
        yield found


@pytest.fixture
def metrics(control: ControlPlane) -> Iterator[ExternalMetrics]:
    with serving(control.certificate, control.key) as found:
        control.apply(*found.objects())
        yield found


def autoscaler() -> dict[str, Any]:
    """The sample, without its wait before a scale-down."""
    found: dict[str, Any] = yaml.safe_load((ROOT / "crds/samples/ecosystem/hpa.yaml").read_text())
    found["spec"]["behavior"]["scaleDown"]["stabilizationWindowSeconds"] = 0
    return found


def shown(control: ControlPlane, kind: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(control.kubectl("get", kind, KEY.name, "-o", "json", "--show-managed-fields"))
    return found


async def reconcile_until(control: ControlPlane, holds: Callable[[], bool], operator: Reconciler) -> None:
    until = time.monotonic() + CHANGED_WITHIN
    while time.monotonic() < until:
        await operator.reconcile(KEY)
        if await asyncio.to_thread(holds):
            return
        await asyncio.sleep(0.5)  # other processes act
    raise AssertionError(json.dumps(shown(control, "hpa")["status"], indent=1))


@pytest.mark.timeout(600)
async def test_a_real_autoscaler_drives_external_mode_to_another_count_and_back(
    control: ControlPlane, metrics: ExternalMetrics
) -> None:
    control.kubectl("apply", "--server-side", "-f", str(ROOT / "crds/sluice.dev_llmdeployments.yaml"))
    # `--for=condition` fails at once for a CRD that has no conditions yet.
    established = 'jsonpath={.status.conditions[?(@.type=="Established")].status}=True'
    control.kubectl("wait", f"--for={established}", "crd/llmdeployments.sluice.dev", "--timeout=60s")
    resource = manifest(scaling={"mode": "External", "maxReplicas": 8}, replicas=2)
    resource["metadata"] = {"name": KEY.name, "namespace": KEY.namespace}
    metrics.value = 40  # 20 for each of two replicas: nothing to do
    control.apply(resource, autoscaler())
    configuration = Configuration()
    await config.load_kube_config(config_file=str(control.kubeconfig), client_configuration=configuration)
    async with ApiClient(configuration=configuration) as client:
        context = Context(KubeClient(client), Engines(), Settings(hub_endpoint=""), KEY_OF_OPERATOR * 2)
        operator = Reconciler(context)

        def has(count: int) -> bool:
            deployment, hpa = shown(control, "deployment"), shown(control, "hpa").get("status", {})
            return deployment["spec"]["replicas"] == count == hpa.get("desiredReplicas")

        await reconcile_until(control, partial(has, 2), operator)
        for value, count in ((70, 4), (10, 1), (40, 2)):
            metrics.value = value
            await reconcile_until(control, partial(has, count), operator)
            assert shown(control, "llmd")["spec"]["replicas"] == count
    assert metrics.asked >= 4
    owners = {
        entry["manager"]
        for entry in shown(control, "llmd")["metadata"]["managedFields"]
        if "f:replicas" in entry.get("fieldsV1", {}).get("f:spec", {})
    }
    assert "sluice-operator" not in owners and "kube-controller-manager" in owners
    with pytest.raises(subprocess.CalledProcessError):
        control.kubectl("get", "llmd", "no-such-model")
