"""What holds for the chart without running Helm (the e2e suite installs it)."""

import json
import re
from pathlib import Path
from typing import Any

import jsonschema_rs
import pytest
import yaml

from sluice import contract
from sluice_operator.kube import _GROUPS
from sluice_operator.settings import from_environment

CHART = Path(__file__).parents[2] / "charts/sluice"
SCHEMA = json.loads((CHART / "values.schema.json").read_text())
VALUES = (CHART / "values.yaml").read_text()
HELPERS = (CHART / "templates/_helpers.tpl").read_text()
RBAC = (CHART / "templates/rbac.yaml").read_text()
DEPLOYMENT = (CHART / "templates/deployment.yaml").read_text()


def operator_rules() -> list[dict[str, Any]]:
    block = re.search(r'define "sluice\.rules" -\}\}\n(.*?)\{\{- end', HELPERS, re.DOTALL)
    assert block is not None
    rules: list[dict[str, Any]] = yaml.safe_load(block.group(1))
    return rules


def verbs(resource: str) -> set[str]:
    return {verb for rule in operator_rules() if resource in rule["resources"] for verb in rule["verbs"]}


def test_no_right_is_a_wildcard() -> None:
    assert "*" not in RBAC.replace("{{- /*", "").replace("*/ -}}", "")
    assert all("*" not in [*rule["apiGroups"], *rule["resources"], *rule["verbs"]] for rule in operator_rules())


def test_secrets_are_neither_listed_nor_changed() -> None:
    assert verbs("secrets") == {"get", "create"}


def test_of_the_resource_only_the_status_is_written() -> None:
    assert verbs("llmdeployments") == {"get", "list", "watch"}
    assert verbs("llmdeployments/status") == {"get", "patch", "update"}


def test_every_kind_that_the_operator_works_with_can_be_read_and_made() -> None:
    for kind, (_, _, plural) in _GROUPS.items():
        if kind in {"Pod", "Lease", "Event", "ConfigMap", contract.KIND}:
            continue
        assert {"get", "create"} <= verbs(plural), kind
    assert {"list", "watch", "patch", "delete"} <= verbs("pods")


def test_nobody_enters_pods_or_grants_rights() -> None:
    named = {resource for rule in operator_rules() for resource in rule["resources"]}
    assert not {"pods/exec", "roles", "clusterroles", "rolebindings", "nodes"} & named
    assert not any("admissionregistration" in group for rule in operator_rules() for group in rule["apiGroups"])


def test_the_defaults_fit_their_schema() -> None:
    jsonschema_rs.validate(SCHEMA, yaml.safe_load(VALUES))


@pytest.mark.parametrize(
    "wrong",
    [{"intervalSeconds": 0}, {"watchNamespace": "Not A Name"}, {"image": {"repository": ""}}, {"unknown": 1}],
    ids=str,
)
def test_wrong_values_are_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(jsonschema_rs.ValidationError):
        jsonschema_rs.validate(SCHEMA, {**yaml.safe_load(VALUES), **wrong})


def test_every_value_is_used() -> None:
    templates = "\n".join(path.read_text() for path in sorted((CHART / "templates").iterdir()))
    for name, value in yaml.safe_load(VALUES).items():
        assert f".Values.{name}" in templates, name
        for inner in value if isinstance(value, dict) and name not in {"image", "resources"} else ():
            assert f".Values.{name}.{inner}" in templates, f"{name}.{inner}"


def test_the_operator_reads_what_the_chart_sets() -> None:
    given = dict(re.findall(r"- name: (SLUICE_\w+)\n +value: (.*)", DEPLOYMENT))
    settings = from_environment(
        {"SLUICE_ENGINE_IMAGE": "a/b:c", "SLUICE_NAMESPACE": "team", "SLUICE_INTERVAL_SECONDS": "7"}
    )
    assert set(given) == {"SLUICE_ENGINE_IMAGE", "SLUICE_NAMESPACE", "SLUICE_INTERVAL_SECONDS"}
    assert (settings.engine_image, settings.namespace, settings.interval) == ("a/b:c", "team", 7.0)
    assert f"containerPort: {settings.health_port}" in DEPLOYMENT


@pytest.mark.parametrize(
    "line",
    [
        "runAsNonRoot: true",
        "allowPrivilegeEscalation: false",
        "readOnlyRootFilesystem: true",
        "capabilities: {drop: [ALL]}",
        "seccompProfile: {type: RuntimeDefault}",
        "automountServiceAccountToken: false",
    ],
)
def test_the_operator_pod_is_restricted(line: str) -> None:
    assert line in DEPLOYMENT


def test_the_crd_is_a_copy_and_stays_on_uninstall() -> None:
    generated = CHART.parents[1] / "crds/sluice.dev_llmdeployments.yaml"
    assert (CHART / "files" / generated.name).read_text() == generated.read_text()
    assert "helm.sh/resource-policy" in (CHART / "templates/crd.yaml").read_text()
    assert yaml.safe_load(VALUES)["crds"] == {"install": True, "keep": True}
