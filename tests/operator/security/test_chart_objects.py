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
