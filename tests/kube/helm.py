"""Helm against the API server of the tests, and the CRD as `sluice crds` prints it."""

import os
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import yaml

from sluice import contract
from sluice.commands.crds import crd_text
from tests.kube.api_server import ApiServer

CHART = Path(__file__).parents[2] / "charts/sluice"
NAME = "llmdeployments.sluice.dev"
CRD = f"/apis/apiextensions.k8s.io/v1/customresourcedefinitions/{NAME}"
RESOURCES = f"/apis/{contract.API_VERSION}/{contract.PLURAL}"
SECONDS = 60.0  # bound of a wait; a busy machine is no failure


class HelmFailed(Exception):
    """Helm's exit code is not 0; the message is what it printed."""


class Helm:
    """Helm against one API server."""

    def __init__(self, server: ApiServer, program: str, home: Path) -> None:
        self._program = program
        self._environment = {**os.environ, "KUBECONFIG": str(server.kubeconfig), "HOME": str(home)}

    def __call__(self, *command: str) -> None:
        """Run one command. Raises HelmFailed with what Helm printed."""
        done = subprocess.run(
            [self._program, *command], env=self._environment, capture_output=True, text=True, check=False, timeout=120
        )
        if done.returncode:
            raise HelmFailed(done.stderr)

    def install(self, release: str, *options: str, chart: Path = CHART, namespace: str = "") -> None:
        """`helm install` as in the README, by default in a namespace named after the release."""
        where = ("--namespace", namespace) if namespace else ("--namespace", release, "--create-namespace")
        self("install", release, str(chart), *where, *options)

    def upgrade(self, release: str, *options: str, chart: Path = CHART) -> None:
        """`helm upgrade` of a release in the namespace of its name."""
        self("upgrade", release, str(chart), "--namespace", release, *options)


def apply_crd(server: ApiServer) -> None:
    """What `sluice crds | kubectl apply --server-side -f -` does."""
    server.request("PATCH", f"{CRD}?fieldManager=kubectl", yaml.safe_load(crd_text()), "application/apply-patch+yaml")


def remove_crd(server: ApiServer) -> None:
    """Delete the CRD, where there is one, and wait until its resources are served no more, which is a moment later."""
    if server.get(CRD) is not None:
        server.request("DELETE", CRD)
    wait_until(lambda: server.get(CRD) is None and server.get(RESOURCES) is None)


def wait_until(is_true: Callable[[], bool]) -> None:
    """Poll an API server that works on what was asked; each poll is a request, so there is no pause."""
    end = time.monotonic() + SECONDS
    while time.monotonic() < end:
        if is_true():
            return
    raise TimeoutError("the API server has not reached the state")
