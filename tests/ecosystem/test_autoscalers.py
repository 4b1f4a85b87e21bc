"""The samples for KEDA and the HorizontalPodAutoscaler: valid, of a target that has /scale, by metrics that exist."""

from pathlib import Path
from typing import Any

import pytest
import yaml

from sluice import contract
from sluice_operator.api.crd import custom_resource_definition
from tests.foreign_schemas import faults
from tests.monitoring.known import faults as query_faults

SAMPLES = Path(__file__).parents[2] / "crds/samples/ecosystem"
KEDA: dict[str, Any] = yaml.safe_load((SAMPLES / "keda.yaml").read_text())
HPA: dict[str, Any] = yaml.safe_load((SAMPLES / "hpa.yaml").read_text())


def test_the_scaled_object_is_valid_by_kedas_schema() -> None:
    assert faults(KEDA, "scaledobjects") == []
    wrong = KEDA | {"spec": KEDA["spec"] | {"maxReplicas": 8, "minReplicaCount": "1"}}
    assert len(faults(wrong, "scaledobjects")) == 2


@pytest.mark.parametrize("scaler", [KEDA, HPA], ids=["keda", "hpa"])
def test_the_target_has_a_scale_subresource(scaler: dict[str, Any]) -> None:
    target = scaler["spec"]["scaleTargetRef"]
    assert (target["apiVersion"], target["kind"]) == (contract.API_VERSION, contract.KIND)
    (version,) = custom_resource_definition()["spec"]["versions"]
    assert {"specReplicasPath", "statusReplicasPath", "labelSelectorPath"} <= set(version["subresources"]["scale"])


def test_kedas_query_asks_for_metrics_and_labels_that_exist() -> None:
    (trigger,) = KEDA["spec"]["triggers"]
    assert trigger["type"] == "prometheus"
    assert query_faults(trigger["metadata"]["query"]) == []
