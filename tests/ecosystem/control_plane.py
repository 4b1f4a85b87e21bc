"""A real API server and controller manager of a test's own: no node, no scheduler, ports of their own.

The programs are those on the PATH: etcd, kube-apiserver, kube-controller-manager, kubectl, and openssl for certificates.
"""

import shutil
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import pytest
import yaml

PROGRAMS: Final = ("etcd", "kube-apiserver", "kube-controller-manager", "kubectl", "openssl")
CONTROLLERS: Final = "horizontal-pod-autoscaler-controller,deployment-controller,replicaset-controller"


@dataclass(frozen=True)
class ControlPlane:
    """A control plane that runs."""

    kubeconfig: Path
    certificate: Path  # for localhost, with its key; also of other servers that the API server calls
    key: Path

    def kubectl(self, *arguments: str, given: str | None = None) -> str:
        """Run kubectl; return its output. Raises CalledProcessError."""
        command = ["kubectl", f"--kubeconfig={self.kubeconfig}", *arguments]
        return subprocess.run(command, input=given, capture_output=True, text=True, check=True).stdout

    def apply(self, *objects: dict[str, object]) -> None:
        """Apply these objects by server-side apply."""
        self.kubectl("apply", "--server-side", "-f", "-", given=yaml.safe_dump_all(objects))


def free_port() -> int:
    """A port that no program listens on."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@contextmanager
def running(folder: Path) -> Iterator[ControlPlane]:
    """Start it; all its processes have ended afterwards. Skips where a program is missing."""
    if any(shutil.which(program) is None for program in PROGRAMS):
        pytest.skip("there is no Kubernetes control plane on the PATH")
    certificate, key = _certificates(folder)
    etcd, peers, server = free_port(), free_port(), free_port()
    kubeconfig = folder / "kubeconfig"
    kubeconfig.write_text(yaml.safe_dump(_kubeconfig(f"https://127.0.0.1:{server}", folder)))
    control = ControlPlane(kubeconfig, certificate, key)
    with ExitStack() as stack:
        stack.enter_context(_process(folder, "etcd", _etcd(folder, etcd, peers)))
        stack.enter_context(_process(folder, "kube-apiserver", _api_server(folder, etcd, server)))
        _wait_until_ready(control, folder / "kube-apiserver.log")
        stack.enter_context(_process(folder, "kube-controller-manager", _controllers(kubeconfig)))
        yield control


def _certificates(folder: Path) -> tuple[Path, Path]:
    """One authority, and one certificate for servers and clients of group system:masters."""
    names = "subjectAltName=IP:127.0.0.1,DNS:localhost\nextendedKeyUsage=serverAuth,clientAuth\n"
    (folder / "names").write_text(names)
    for command in (
        "req -x509 -newkey rsa:2048 -nodes -days 2 -subj /CN=ca -keyout ca.key -out ca.crt",
        "genrsa -out accounts.key 2048",
        "req -newkey rsa:2048 -nodes -subj /O=system:masters/CN=tests -keyout tests.key -out tests.csr",
        "x509 -req -in tests.csr -CA ca.crt -CAkey ca.key -CAcreateserial -days 2 -out tests.crt -extfile names",
    ):
        subprocess.run(["openssl", *command.split()], cwd=folder, capture_output=True, check=True)
    return folder / "tests.crt", folder / "tests.key"


def _kubeconfig(server: str, folder: Path) -> dict[str, object]:
    user = {"client-certificate": str(folder / "tests.crt"), "client-key": str(folder / "tests.key")}
    return {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "t", "cluster": {"server": server, "certificate-authority": str(folder / "ca.crt")}}],
        "users": [{"name": "t", "user": user}],
        "contexts": [{"name": "t", "context": {"cluster": "t", "user": "t"}}],
        "current-context": "t",
    }


def _etcd(folder: Path, port: int, peers: int) -> dict[str, object]:
    client, peer = f"http://127.0.0.1:{port}", f"http://127.0.0.1:{peers}"
    return {
        "name": "t",
        "data-dir": folder / "etcd",
        "listen-client-urls": client,
        "advertise-client-urls": client,
        "listen-peer-urls": peer,
        "initial-advertise-peer-urls": peer,
        "initial-cluster": f"t={peer}",
        "unsafe-no-fsync": "true",
    }


def _api_server(folder: Path, etcd: int, port: int) -> dict[str, object]:
    certificate, key, authority = folder / "tests.crt", folder / "tests.key", folder / "ca.crt"
    return {
        "etcd-servers": f"http://127.0.0.1:{etcd}",
        "bind-address": "127.0.0.1",
        "secure-port": port,
        "endpoint-reconciler-type": "none",
        "authorization-mode": "RBAC",
        "client-ca-file": authority,
        "tls-cert-file": certificate,
        "tls-private-key-file": key,
        "service-cluster-ip-range": "10.96.0.0/16",
        "service-account-issuer": "https://kubernetes.default.svc",
        "service-account-key-file": folder / "accounts.key",
        "service-account-signing-key-file": folder / "accounts.key",
        "requestheader-client-ca-file": authority,
        "requestheader-allowed-names": "proxy",
        "requestheader-username-headers": "X-Remote-User",
        "requestheader-group-headers": "X-Remote-Group",
        "requestheader-extra-headers-prefix": "X-Remote-Extra-",
        "proxy-client-cert-file": certificate,
        "proxy-client-key-file": key,
    }


def _controllers(kubeconfig: Path) -> dict[str, object]:
    return {
        "kubeconfig": kubeconfig,
        "controllers": CONTROLLERS,
        "leader-elect": "false",
        "bind-address": "127.0.0.1",
        "secure-port": free_port(),
        "horizontal-pod-autoscaler-sync-period": "1s",
    }


@contextmanager
def _process(folder: Path, program: str, options: dict[str, object]) -> Iterator[None]:
    command = [program, *(f"--{name}={value}" for name, value in options.items())]
    with (folder / f"{program}.log").open("w") as log:
        process = subprocess.Popen(command, stdout=log, stderr=log)
        try:
            yield
        finally:
            process.terminate()
            try:
                process.wait(20)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait(20)


def _wait_until_ready(control: ControlPlane, log: Path) -> None:
    until = time.monotonic() + 120
    while time.monotonic() < until:
        try:
            control.kubectl("get", "--raw", "/readyz")
        except subprocess.CalledProcessError:
            time.sleep(0.2)  # other processes start
        else:
            return
    raise AssertionError(f"the API server is not ready after 120 s: {log.read_text()[-3000:]}")
