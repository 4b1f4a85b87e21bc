"""Names, namespaces and labels that a user of the chart chooses: each renders as Kubernetes takes it, or is refused."""

import json
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import jsonschema_rs
import pytest
import yaml

Object = dict[str, Any]

CHART: Final = Path(__file__).parents[2] / "charts/sluice"
_MONITORS: Final = ("PodMonitor", "ServiceMonitor", "PrometheusRule")
_STRINGS: Final = frozenset({"name", "namespace", "serviceAccountName", "secretName", "priorityClassName"})


class _OnceKeys(yaml.SafeLoader):
    """As strict readers of YAML, kustomize among them, it refuses a key that a mapping has twice."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        keys = [self.construct_object(key) for key, _ in node.value]
        assert len(set(map(str, keys))) == len(keys), f"twice in one mapping: {keys}"
        return super().construct_mapping(node, deep)


def run(release: str, namespace: str, *options: str) -> subprocess.CompletedProcess[str]:
    """`helm template` of the chart without its CRD."""
    helm = shutil.which("helm")
    if helm is None:
        pytest.skip("helm is not installed")
    monitors = [f"--api-versions=monitoring.coreos.com/v1/{kind}" for kind in _MONITORS]
    command = [helm, "template", release, str(CHART), "--kube-version", "1.34.0", "--namespace", namespace, *monitors]
    return subprocess.run(
        [*command, "--set", "crds.install=false", *options], capture_output=True, text=True, check=False
    )


def rendered(release: str, namespace: str, *options: str) -> list[Object]:
    done = run(release, namespace, *options)
    assert not done.returncode, done.stderr
    return [each for each in yaml.load_all(done.stdout, _OnceKeys) if each]


def texts(value: Any, key: str = "") -> list[Any]:
    """Everything in a document that Kubernetes reads as text: names, labels, annotations and selectors."""
    if isinstance(value, list):
        return [found for each in value for found in texts(each, key)]
    if isinstance(value, dict):
        is_map = key in ("labels", "annotations", "matchLabels")
        return [found for name, each in value.items() for found in ([each] if is_map else texts(each, str(name)))]
    return [value] if key in _STRINGS or key in ("resourceNames", "values", "args") else []


@pytest.mark.parametrize("odd", ["123", "1e5", "on"])
def test_a_name_that_yaml_reads_as_another_type_stays_text(odd: str) -> None:
    values = f"serviceAccount.name={odd},priorityClassName={odd},gateway.priorityClassName={odd}"
    secrets = f"gateway.apiKeysSecret={odd},gateway.engineTokenSecret={odd}"
    spaces = ("--set-json", f"watchNamespaces={json.dumps([odd])}")
    objects = rendered(odd, odd, "--set-string", f"fullnameOverride=on,{values},{secrets}", *spaces)
    found = [text for each in objects for text in texts(each)]
    assert odd in found and "on" in found
    assert [text for text in found if not isinstance(text, str)] == []
    peers = [
        json.loads(each["value"])
        for thing in objects
        if thing["kind"] == "Deployment"
        for each in thing["spec"]["template"]["spec"]["containers"][0]["env"]
        if each["name"] == "SLUICE_NETWORK_PEERS"
    ]
    assert [text for each in peers for text in texts(each) if not isinstance(text, str)] == []


@pytest.mark.parametrize("release", ["42", "v1.2"])
def test_a_release_after_which_no_service_can_be_named_is_refused_before_anything_is_made(release: str) -> None:
    refused = run(release, "team")
    assert (
        refused.returncode and "a letter first: choose another release name, or set fullnameOverride" in refused.stderr
    )
    services = [
        each for each in rendered(release, "team", "--set", "fullnameOverride=llm") if each["kind"] == "Service"
    ]
    assert {each["metadata"]["name"] for each in services} == {"llm-gateway", "llm-metrics"}


def test_a_label_of_the_user_goes_before_ours_except_where_it_selects() -> None:
    theirs = {"app.kubernetes.io/part-of": "platform", "app.kubernetes.io/name": "mine", "team": "42"}
    places = ("podLabels", "gateway.podLabels", "metrics.monitors.labels", "metrics.rules.labels")
    objects = rendered("blue", "team", *(f"--set-json={place}={json.dumps(theirs)}" for place in places))
    deployments = [each["spec"]["template"]["metadata"]["labels"] for each in objects if each["kind"] == "Deployment"]
    monitors = [each["metadata"]["labels"] for each in objects if each["kind"] in _MONITORS]
    assert len(deployments) == 2 and len(monitors) == 3
    for labels in (*deployments, *monitors):
        assert (labels["app.kubernetes.io/part-of"], labels["team"]) == ("platform", "42")
        assert labels["app.kubernetes.io/name"] in ("sluice-operator", "sluice-gateway")


@pytest.mark.parametrize(
    ("name", "value", "is_taken"),
    [
        ("intervalSeconds", "0.5", True),  # --set reads a fraction as text
        ("intervalSeconds", "299.5", True),
        ("intervalSeconds", 300, True),
        ("intervalSeconds", "0.4", False),
        ("intervalSeconds", "300.5", False),
        ("intervalSeconds", 301, False),
        ("image", {"repository": "a", "tag": "sha256:abc"}, False),
        ("image", {"repository": "a", "tag": f"v1@sha256:{'0' * 64}"}, True),
    ],
)
def test_values_of_the_command_line(name: str, value: Any, is_taken: bool) -> None:
    schema = jsonschema_rs.validator_for(json.loads((CHART / "values.schema.json").read_text()))
    values = yaml.safe_load((CHART / "values.yaml").read_text())
    assert schema.is_valid(values | {name: value}) is is_taken


@pytest.mark.parametrize(
    ("header", "is_taken"),
    [
        ("", True),
        ("x-session_id", True),
        ("X-Sluice-Session", False),
        ("x-sluice-a", False),
        ("-a", False),
        ("a b", False),
    ],
)
def test_a_header_of_the_gateways_own_names_no_conversation(header: str, is_taken: bool) -> None:
    schema = jsonschema_rs.validator_for(json.loads((CHART / "values.schema.json").read_text()))
    values = yaml.safe_load((CHART / "values.yaml").read_text())
    assert schema.is_valid(values | {"gateway": values["gateway"] | {"sessionHeader": header}}) is is_taken


def _nulls(values: Object, above: tuple[str, ...] = ()) -> Iterator[str]:
    """The places of all lists and mappings of the values, as --set has them."""
    for name, value in values.items():
        place = (*above, name.replace(".", "\\."))
        if isinstance(value, list | dict):
            yield ".".join(place)
        if isinstance(value, dict):
            yield from _nulls(value, place)


@pytest.mark.parametrize("place", [*_nulls(yaml.safe_load((CHART / "values.yaml").read_text()))])
def test_a_null_in_place_of_a_list_or_mapping_renders_or_is_refused_by_the_schema(place: str) -> None:
    done = run("blue", "team", "--set", f"{place}=null")
    assert not done.returncode or "missing propert" in done.stderr, done.stderr
