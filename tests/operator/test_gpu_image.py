"""The image for GPUs: what its Dockerfile makes of DEVICE, how it is built, and the pods that it runs in.

It is not built in CI: torch's CUDA build and its libraries take gigabytes.
"""

import importlib.util
import json
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from sluice_operator import render
from sluice_operator.settings import InvalidSettings, Settings, from_environment
from tests.operator.render.test_render import resource
from tests.operator.test_chart import VALUES, named, rendered

ROOT = Path(__file__).parents[2]
HOME = "/home/sluice"


def stages(text: str) -> dict[str, tuple[str, str]]:
    """Stage of a Dockerfile → its base and its instructions, continued lines joined. The last one is "final"."""
    lines = re.sub(r"\\\n\s*", " ", text)
    found: dict[str, tuple[str, str]] = {}
    for part in re.split(r"^FROM ", lines, flags=re.MULTILINE)[1:]:
        head, _, body = part.partition("\n")
        base, _, name = head.partition(" AS ")
        found[name or "final"] = (base, "\n".join(line for line in body.splitlines() if line and line[0] != "#"))
    return found


@pytest.fixture(scope="module")
def dockerfile() -> str:
    return (ROOT / "engine/Dockerfile").read_text()


def test_the_device_chooses_the_base_of_the_image_and_cpu_is_the_default(dockerfile: str) -> None:
    found = stages(dockerfile)
    assert re.search(r"^ARG DEVICE=cpu$", dockerfile.partition("FROM ")[0], re.MULTILINE)
    assert found["final"][0] == "base-${DEVICE}"
    assert {name for name in found if name.startswith("base-")} == {"base-cpu", "base-cuda"}
    assert found["base-cpu"] == (found["base-cuda"][0], "")


def test_the_cuda_image_has_a_compiler_and_a_cuda_build_of_torch(dockerfile: str) -> None:
    found = stages(dockerfile)
    packages = re.findall(r"apt-get install -y --no-install-recommends ([\w. -]+?) &&", found["base-cuda"][1])
    assert packages == ["gcc libc6-dev"]
    environment = dict(
        each.split("=") for each in re.findall(r"^ENV (.*)$", found["base-cuda"][1], re.MULTILINE)[0].split()
    )
    assert environment == {
        "CC": "gcc",
        "TRITON_CACHE_DIR": render.TRITON_CACHE,
        "NVIDIA_DRIVER_CAPABILITIES": "compute,utility",
        "TRITON_CACHE_MANAGER": "sluice_kernels.image_cache:ImageCache",
        "SLUICE_KERNELS": "/opt/sluice/kernels",
    }
    assert "ARG DEVICE" in found["build"][1].splitlines()


@pytest.mark.parametrize(("device", "compiles"), [("cpu", False), ("cuda", True)])
def test_the_cuda_image_has_the_kernels_where_triton_looks_for_them(
    device: str, compiles: bool, dockerfile: str, tmp_path: Path
) -> None:
    """The Dockerfile's own command, with a Python that prints what it is given."""
    (command,) = re.findall(r"^RUN (if .*precompile;.*)$", stages(dockerfile)["build"][1], re.MULTILINE)
    python = tmp_path / "python"
    python.write_text('#!/bin/sh\necho "$TRITON_CACHE_DIR" "$@"\n')
    python.chmod(0o755)
    script = command.replace("/opt/sluice/bin/python", str(python))
    environment = {"DEVICE": device, "PATH": "/usr/bin:/bin"}
    done = subprocess.run(["sh", "-c", script], env=environment, capture_output=True, check=True, text=True)
    expected = ["/opt/sluice/kernels -m sluice_engine.backend.cuda.precompile"] if compiles else []
    assert done.stdout.splitlines() == expected
    assert importlib.util.find_spec("sluice_engine.backend.cuda.precompile.__main__") is not None


@pytest.mark.parametrize(
    ("device", "cuda", "builds"),
    [("cpu", "None", True), ("cpu", "'13.0'", True), ("cuda", "None", False), ("cuda", "'13.0'", True)],
)
def test_a_cpu_build_of_torch_makes_no_cuda_image(
    device: str, cuda: str, builds: bool, dockerfile: str, tmp_path: Path
) -> None:
    """The Dockerfile's own condition, on the file that each build of torch has."""
    (found,) = re.findall(r"&& (if \[ \"\$DEVICE\" = cuda \].*?fi)\s+&&", stages(dockerfile)["build"][1])
    version = tmp_path / "lib/python3.11/site-packages/torch/version.py"
    version.parent.mkdir(parents=True)
    version.write_text(f"__version__ = '2.13.0'\ncuda: Optional[str] = {cuda}\n")
    script = found.replace("/opt/sluice", str(tmp_path))
    environment = {"DEVICE": device, "PATH": "/usr/bin:/bin"}
    done = subprocess.run(["sh", "-c", script], env=environment, capture_output=True, check=False)
    assert (done.returncode == 0) == builds
    assert builds or b"leave PIP_FIND_LINKS out" in done.stderr


def test_the_image_runs_as_a_user_and_writes_nothing_beside_its_home(dockerfile: str) -> None:
    body = stages(dockerfile)["final"][1]
    assert re.findall(r"^USER (.*)$", body, re.MULTILINE) == [f"{render.USER}:{render.USER}"]
    assert re.findall(r"HOME=(\S+)", body) == [HOME]
    assert "PYTHONDONTWRITEBYTECODE=1" in body


@pytest.mark.skipif(shutil.which("make") is None, reason="make is not installed")
@pytest.mark.parametrize(
    ("given", "image", "device"),
    [([], "sluice/engine:dev", "cpu"), (["DEVICE=cuda"], "sluice/engine-cuda:dev", "cuda")],
)
def test_make_images_builds_the_image_of_the_device(given: list[str], image: str, device: str) -> None:
    done = subprocess.run(["make", "-n", "images", *given], cwd=ROOT, capture_output=True, text=True, check=True)
    assert f"-t {image} --build-arg DEVICE={device} -f engine/Dockerfile ." in done.stdout
    assert "-t sluice/operator:dev -f operator/Dockerfile ." in done.stdout


def pod(**accelerator: object) -> dict[str, Any]:
    changes = {f"engine.accelerator.{name}": value for name, value in accelerator.items()}
    template = render.pod_template(resource(changes), render.PodDefaults("sluice/engine-cuda:dev"), "t")
    made: dict[str, Any] = template["spec"]
    return made


@pytest.mark.parametrize("count", [1, 2])
def test_a_gpu_pod_is_restricted_and_writes_to_empty_dirs_alone(count: int) -> None:
    spec = pod(count=count)
    (container,) = spec["containers"]
    assert spec["securityContext"]["runAsNonRoot"] is True
    assert spec["securityContext"]["runAsUser"] == render.USER
    assert spec["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    assert container["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }
    volumes = {each["name"]: each for each in spec["volumes"]}
    writable = [each for each in container["volumeMounts"] if not each.get("readOnly")]
    assert all("emptyDir" in volumes[each["name"]] for each in writable)
    (cache,) = (each["value"] for each in container["env"] if each["name"] == "TRITON_CACHE_DIR")
    folders = {each["mountPath"] for each in writable}
    assert folders >= {HOME, "/tmp"}
    assert [folder for folder in folders if Path(cache).is_relative_to(folder)] == [HOME]


def test_the_overlay_may_place_the_triton_cache_elsewhere() -> None:
    own = {"name": "TRITON_CACHE_DIR", "value": "/mnt/kernels"}
    template = render.pod_template(resource({"engine.template.env": [own]}), render.PodDefaults("x"), "t")
    environment = template["spec"]["containers"][0]["env"]
    assert [each for each in environment if each["name"] == own["name"]] == [own]


def test_a_pod_without_an_accelerator_has_no_triton_cache() -> None:
    assert "TRITON_CACHE_DIR" not in {each["name"] for each in pod(count=0)["containers"][0]["env"]}


def test_the_accelerator_chooses_the_image() -> None:
    settings = Settings(engine_image="engine:1", engine_images=(("nvidia.com/gpu", "engine-cuda:1"),))
    assert settings.image_of("nvidia.com/gpu", 1) == "engine-cuda:1"
    assert settings.image_of("nvidia.com/gpu", 0) == "engine:1"
    assert settings.image_of("amd.com/gpu", 1) == "engine:1"


@pytest.mark.parametrize("value", ["[]", "{", '{"nvidia.com/gpu": 1}', '{"nvidia.com/gpu": ""}'])
def test_wrong_images_are_refused(value: str) -> None:
    with pytest.raises(InvalidSettings, match=r"SLUICE_ENGINE_IMAGES is .* it must be JSON such as"):
        from_environment({"SLUICE_ENGINE_IMAGES": value})


@pytest.mark.parametrize(
    ("options", "images"),
    [
        (["--set", "engine.image.tag=dev"], {"nvidia.com/gpu": "sluice/engine-cuda:dev"}),
        (["--set", r"engine.acceleratorImages.nvidia\.com/gpu.tag=v1"], {"nvidia.com/gpu": "sluice/engine-cuda:v1"}),
        (["--set", r"engine.acceleratorImages.nvidia\.com/gpu=null"], {}),
    ],
    ids=["default", "tag", "none"],
)
def test_the_chart_gives_the_operator_an_image_for_gpus(options: list[str], images: dict[str, str]) -> None:
    (deployment,) = named(rendered("blue", *options), "Deployment", "operator")
    environment = deployment["spec"]["template"]["spec"]["containers"][0]["env"]
    (given,) = (each["value"] for each in environment if each["name"] == "SLUICE_ENGINE_IMAGES")
    assert json.loads(given) == images
    assert set(yaml.safe_load(VALUES)["engine"]["acceleratorImages"]) == {"nvidia.com/gpu"}
