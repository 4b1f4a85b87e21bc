"""Part 4: the README's quickstart on a cluster, line by line as written.

Only the parts that differ between clusters are replaced: the build and load commands of images, and the namespace of
the current context.
"""

import os
import re
import shlex
import subprocess
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from e2e.framework import images, volume
from e2e.framework.cluster import Cluster, CommandFailed, TimedOut, run, say
from e2e.framework.settings import ROOT, Settings
from sluice_engine.tiny import corpus

NAMESPACE = "sluice-system"  # as in the README
PREFIX, TAG = "sluice", "dev"  # of the images, as in the README
ENGINE = f"{PREFIX}/engine:{TAG}"
CRD = "llmdeployments.sluice.dev"


def quickstart() -> list[str]:
    """The lines of the README's shell block for a cluster."""
    block = re.search(
        r"^## On a cluster\n.*?^```bash\n(.*?)^```", (ROOT / "README.md").read_text(), re.MULTILINE | re.DOTALL
    )
    if block is None:
        raise LookupError("README.md has no shell block under 'On a cluster'")
    return [line for line in block.group(1).splitlines() if line]


@pytest.fixture
def context(cluster: Cluster, settings: Settings, tmp_path: Path) -> Iterator[dict[str, str]]:
    """The environment of a user whose context names a separate namespace, in which a claim gets its volume."""
    namespace = f"sluice-readme-{settings.run}"
    kubeconfig = tmp_path / "kubeconfig"
    kubeconfig.write_text(run("kubectl", "config", "view", "--raw", "--flatten"))
    run("kubectl", "config", "--kubeconfig", str(kubeconfig), "set-context", "--current", f"--namespace={namespace}")
    run("kubectl", "create", "namespace", namespace)
    outside: list[tuple[str, str]] = []
    here = Cluster(namespace, cluster.api)
    try:
        same = (settings.image_prefix, settings.image_tag) == (PREFIX, TAG)
        images.make(settings if same else replace(settings, image_prefix=PREFIX, image_tag=TAG, has_images=False))
        outside = volume.back(here, f"{settings.run}-readme", ENGINE)
        yield os.environ | {"KUBECONFIG": str(kubeconfig), "BUILD": shlex.join(settings.build)}
    finally:
        for step in clean_up(here, outside):
            try:
                step()
            except (CommandFailed, TimedOut) as left:
                say(f"could not clean up: {left}")


def clean_up(here: Cluster, outside: list[tuple[str, str]]) -> list[Callable[[], object]]:
    """The clean-up steps in order: deployments with their children, the operator, the model's folder, other objects.

    Deployments need a running operator. If their namespace were deleted first, it would wait for draining pods, and the
    operator in the other namespace would still write into it.
    """

    def command(*words: str) -> Callable[[], object]:
        return lambda: run(*words, timeout=200)

    return [
        command(
            *("kubectl", "--namespace", here.namespace, "delete", CRD, "--all", "--cascade=foreground"),
            "--timeout=150s",
        ),
        command("helm", "uninstall", "sluice", "--namespace", NAMESPACE, "--ignore-not-found", "--wait"),
        lambda: volume.erase(here, outside, ENGINE),
        *(command("kubectl", "delete", kind, name, "--wait=false") for kind, name in outside),
        command("kubectl", "delete", "namespace", here.namespace, "--ignore-not-found", "--timeout=120s"),
        command("kubectl", "delete", "namespace", NAMESPACE, "--ignore-not-found", "--timeout=120s"),
        command("kubectl", "delete", "crd", CRD, "--ignore-not-found", "--timeout=60s"),
    ]


def test_the_readmes_quickstart_runs_as_written(context: dict[str, str]) -> None:
    lines = quickstart()
    assert lines[0] == "make images"
    assert lines[1].startswith("kind load docker-image")  # the fixture ran both, with this cluster's tools
    said = [once(line, context) for line in lines[2:]]
    table, answer = said[-2], said[-1]
    assert "True" in table
    assert next(pair.answer for pair in corpus.load() if pair.question in lines[-1]) in " ".join(answer.split())


def once(line: str, environment: dict[str, str]) -> str:
    """Run one line in a shell."""
    say(f"$ {line}")
    done = subprocess.run(
        ["bash", "-c", line], cwd=ROOT, env=environment, capture_output=True, text=True, timeout=900, check=False
    )
    say(done.stdout.strip())
    assert done.returncode == 0, done.stderr
    return done.stdout
