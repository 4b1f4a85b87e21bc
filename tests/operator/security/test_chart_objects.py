"""The stored objects of the chart are those that Helm renders. SLUICE_UPDATE_GOLDENS writes them anew."""

import os
import shutil
import subprocess
from pathlib import Path

import pytest
import yaml

from tests.operator.security.chart_objects import DATA, NAMESPACE, RELEASE, VARIANTS, Object, stored

CHART = Path(__file__).parents[3] / "charts/sluice"


def rendered(*options: str) -> list[Object]:
    """Helm's objects without the CRD, which is a copy of crds/."""
    helm = shutil.which("helm")
    if helm is None:
        pytest.skip("helm is not installed")
    command = [helm, "template", RELEASE, str(CHART), "--namespace", NAMESPACE, "--kube-version", "1.34.0", *options]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    objects = [each for each in yaml.safe_load_all(done.stdout) if each]
    return [each for each in objects if each["kind"] != "CustomResourceDefinition"]


@pytest.mark.parametrize("variant", VARIANTS)
def test_the_stored_objects_are_those_of_helm(variant: str) -> None:
    objects = rendered(*VARIANTS[variant])
    if os.environ.get("SLUICE_UPDATE_GOLDENS"):
        (DATA / f"{variant}.yaml").write_text(yaml.safe_dump_all(objects, sort_keys=False, width=120))
    assert stored(variant) == objects


def test_each_stored_file_is_a_variant() -> None:
    assert {path.stem for path in DATA.glob("*.yaml")} == set(VARIANTS)


@pytest.mark.parametrize("variant", VARIANTS)
def test_a_check_of_the_scanner_is_skipped_only_where_there_is_an_image_and_with_a_reason(variant: str) -> None:
    skips = {
        (each["kind"], text.partition("=")[0]): text.partition("=")[2]
        for each in stored(variant)
        for name, text in (each["metadata"].get("annotations") or {}).items()
        if name.startswith("checkov.io/")
    }
    images = {(kind, f"CKV_K8S_{number}") for kind in ("Deployment", "Job") for number in (15, 43)}
    assert set(skips) <= images | {("Deployment", "CKV_K8S_11")}
    assert all(len(reason.split()) >= 8 for reason in skips.values())


def test_a_pinned_image_and_a_cpu_limit_leave_nothing_to_skip() -> None:
    digest = f"sha256:{'a' * 64}"
    values = f"image.digest={digest},image.pullPolicy=Always,gateway.resources.limits.cpu=1"
    objects = rendered("--set", values)
    assert not [each for each in objects if "checkov" in str(each["metadata"].get("annotations"))]
