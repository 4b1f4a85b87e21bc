"""Golden pairs: what an LLMDeployment is turned into, as YAML that a person can read and a diff can show."""

import os
from pathlib import Path

import pytest
import yaml

from sluice_operator import render
from sluice_operator.api import parse
from sluice_operator.settings import NetworkPeers

DATA = Path(__file__).parents[2] / "data/kubernetes"
IMAGE = "sluice/engine:dev"
PEERS = NetworkPeers(admin=({"podSelector": {"matchLabels": {"app": "operator"}}},))
INPUTS = sorted((DATA / "input").glob("*.yaml"))
COUNTS = {"cpu": None}  # External mode before its first scale: the count is left alone


@pytest.mark.parametrize("given", INPUTS, ids=lambda path: path.stem)
def test_children_equal_their_golden(given: Path) -> None:
    resource = parse(yaml.safe_load(given.read_text()))
    made = [
        *render.children(
            resource, defaults=render.PodDefaults(IMAGE), replicas=COUNTS.get(given.stem, 2), token="not-a-secret"
        ),
        render.admin_secret(resource, "not-a-secret"),
        render.network_policy(resource, PEERS),
    ]
    golden = DATA / "output" / given.name
    if os.environ.get("SLUICE_UPDATE_GOLDENS"):
        golden.parent.mkdir(exist_ok=True)
        golden.write_text(yaml.safe_dump_all(made, sort_keys=False, width=120))
    assert list(yaml.safe_load_all(golden.read_text())) == made


def test_each_golden_has_an_input() -> None:
    assert {path.name for path in (DATA / "output").glob("*.yaml")} == {path.name for path in INPUTS}
