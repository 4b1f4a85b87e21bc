"""From spec.slo to an engine without an operator: what is rendered is mounted, named, read and taken as it is meant."""

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sluice import contract
from sluice_engine.config import engine_options
from sluice_engine.limits import Limits
from sluice_engine.server.targets import TargetsFile
from sluice_operator import render
from sluice_operator.api import LLMDeployment, parse
from tests.operator.fake_cluster import manifest

CEILING = 512


def resource(**spec: Any) -> LLMDeployment:
    return parse(manifest(**spec))


def rendered(of: LLMDeployment) -> tuple[dict[str, Any], dict[str, Any]]:
    """The ConfigMap and the pod's spec."""
    made = render.children(of, defaults=render.PodDefaults("engine"), replicas=1, token="t")
    found = {child["kind"]: child for child in made}
    return found["ConfigMap"], found["Deployment"]["spec"]["template"]["spec"]


def taken(of: LLMDeployment) -> Limits:
    """What the engine makes of it; the file must be good, or its defaults would stay unseen."""
    content = rendered(of)[0]["data"][contract.TARGETS_FILE].encode()
    options = engine_options(model="m", served_name="m", max_num_seqs=CEILING, concurrency_max=CEILING, itl_target=9.0)
    file = TargetsFile(Path("x"), options, read=lambda _: content)
    assert file.poll()
    return file.limits


def test_the_mounted_targets_file_is_the_one_that_the_engine_reads() -> None:
    config_map, pod = rendered(resource())
    (container,) = pod["containers"]
    mounts = {mount["name"]: mount for mount in container["volumeMounts"]}
    volumes = {volume["name"]: volume for volume in pod["volumes"]}
    assert mounts["targets"] == {"name": "targets", "mountPath": contract.TARGETS_MOUNT, "readOnly": True}  # no subPath
    assert volumes["targets"]["configMap"]["name"] == config_map["metadata"]["name"]
    assert f"--targets-file={contract.TARGETS_MOUNT}/{contract.TARGETS_FILE}" in container["args"]
    assert set(config_map["data"]) == {contract.TARGETS_FILE}


@pytest.mark.parametrize(("mode", "least", "most"), [("Auto", 8, 64), ("Fixed", 64, 64), ("Off", 1, CEILING)])
def test_slo_and_range_of_the_spec_apply_without_a_patch(mode: str, least: int, most: int) -> None:
    admission = {"mode": mode, "concurrency": {"min": 8, "max": 64}}
    found = taken(resource(slo={"ttftMilliseconds": 8000, "itlMilliseconds": 200}, admission=admission))
    assert found == Limits(concurrency_min=least, concurrency_max=most, itl_target=0.2, ttft_target=8.0)


@given(
    ttft=st.integers(1, 3_600_000),
    itl=st.integers(1, 60_000),
    ends=st.tuples(st.integers(1, 4096), st.integers(1, 4096)),
    mode=st.sampled_from(["Auto", "Fixed", "Off"]),
)
def test_every_valid_spec_is_accepted_by_the_engine(ttft: int, itl: int, ends: tuple[int, int], mode: str) -> None:
    concurrency = {"min": min(ends), "max": max(ends)}
    slo = {"ttftMilliseconds": ttft, "itlMilliseconds": itl}
    found = taken(resource(slo=slo, admission={"mode": mode, "concurrency": concurrency}))
    assert (found.ttft_target, found.itl_target) == (ttft / 1000, itl / 1000)
    assert 1 <= found.concurrency_min <= found.concurrency_max <= CEILING
