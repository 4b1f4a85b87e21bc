"""A real API server for tests: etcd and kube-apiserver, without controllers, scheduler or kubelet.

Both are found as controller-runtime's envtest finds them: in the folder KUBEBUILDER_ASSETS, else on the PATH.
"""

import json
import os
import shutil
import socket
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from http import HTTPStatus
from pathlib import Path
from ssl import create_default_context
from typing import Any, Final

Object = dict[str, Any]

TOKEN: Final = "test"  # of a user in system:masters
START_SECONDS: Final = 90.0
PATIENCE: Final = 10.0  # seconds for which a request is repeated after 429
MISSING: Final = "no kube-apiserver and etcd: set KUBEBUILDER_ASSETS, as setup-envtest prints it"


class NoApiServer(Exception):
    """The programs are not installed."""


@dataclass(frozen=True)
class ApiServer:
    """A running API server at `url`, with a kubeconfig for command line tools."""

    url: str
    certificate: Path
    kubeconfig: Path

    def request(self, method: str, path: str, body: Object | None = None, content: str = "application/json") -> Object:
        """Send a request, again while the server answers 429, and return the JSON answer.

        A server that has just accepted a CRD answers 429 until the storage is ready. Raises urllib.error.HTTPError.
        """
        end = time.monotonic() + PATIENCE
        while True:
            try:
                return self._send(method, path, body, content)
            except urllib.error.HTTPError as error:
                if error.code != HTTPStatus.TOO_MANY_REQUESTS or time.monotonic() > end:
                    raise
                error.close()
                time.sleep(0.05)

    def _send(self, method: str, path: str, body: Object | None, content: str) -> Object:
        request = urllib.request.Request(
            self.url + path,
            method=method,
            data=None if body is None else json.dumps(body).encode(),
            headers={"Authorization": f"Bearer {TOKEN}", "Content-Type": content},
        )
        context = create_default_context(cafile=str(self.certificate))
        with urllib.request.urlopen(request, timeout=30, context=context) as answer:
            found: Object = json.loads(answer.read() or b"{}")
            return found

    def get(self, path: str) -> Object | None:
        """The object at an API path; None if it does not exist."""
        try:
            return self.request("GET", path)
        except urllib.error.HTTPError as error:
            error.close()
            if error.code == HTTPStatus.NOT_FOUND:
                return None
            raise


def programs() -> dict[str, str]:
    """The paths of etcd and kube-apiserver. Raises NoApiServer."""
    folder = os.environ.get("KUBEBUILDER_ASSETS")
    found = {name: shutil.which(name, path=folder) or shutil.which(name) for name in ("etcd", "kube-apiserver")}
    if not all(found.values()) or shutil.which("openssl") is None:
        raise NoApiServer(MISSING)
    return {name: str(path) for name, path in found.items()}


@contextmanager
def running(folder: Path) -> Iterator[ApiServer]:
    """An empty API server whose files are in `folder`. Raises NoApiServer, and TimeoutError if it does not start."""
    found = programs()
    client, peer, port = free_ports(3)
    etcd_url, peer_url, url = f"http://127.0.0.1:{client}", f"http://127.0.0.1:{peer}", f"https://127.0.0.1:{port}"
    certificate, key, accounts = _keys(folder)
    (folder / "tokens.csv").write_text(f'{TOKEN},admin,1,"system:masters"\n')
    commands = (
        [
            found["etcd"], f"--data-dir={folder / 'etcd'}", "--unsafe-no-fsync", "--log-level=error", "--name=test",
            f"--listen-client-urls={etcd_url}", f"--advertise-client-urls={etcd_url}",
            f"--listen-peer-urls={peer_url}", f"--initial-advertise-peer-urls={peer_url}",
            f"--initial-cluster=test={peer_url}",
        ],
        [
            found["kube-apiserver"], f"--etcd-servers={etcd_url}", f"--secure-port={port}", "--bind-address=127.0.0.1",
            f"--tls-cert-file={certificate}", f"--tls-private-key-file={key}", "--authorization-mode=RBAC",
            f"--token-auth-file={folder / 'tokens.csv'}", "--service-cluster-ip-range=10.0.0.0/16",
            "--service-account-issuer=https://test", f"--service-account-key-file={accounts}",
            f"--service-account-signing-key-file={accounts}", "--disable-admission-plugins=ServiceAccount",
        ],
    )  # fmt: skip
    server = ApiServer(url, certificate, kubeconfig(folder, url, certificate))
    with ExitStack() as stack:
        log = stack.enter_context((folder / "log").open("wb"))
        for command in commands:
            process = stack.enter_context(subprocess.Popen(command, stdout=log, stderr=log))
            stack.callback(process.kill)
        _wait_until_ready(server, folder / "log")
        yield server


@contextmanager
def controllers(server: ApiServer, folder: Path, *names: str, options: Sequence[str] = ()) -> Iterator[None]:
    """These controllers of Kubernetes over that API server. Raises NoApiServer."""
    name = "kube-controller-manager"
    program = shutil.which(name, path=os.environ.get("KUBEBUILDER_ASSETS")) or shutil.which(name)
    if program is None:
        raise NoApiServer("there is no Kubernetes control plane on the PATH")
    (port,) = free_ports(1)
    command = [
        program,
        f"--kubeconfig={server.kubeconfig}",
        f"--controllers={','.join(names)}",
        f"--secure-port={port}",
    ]
    command += ["--leader-elect=false", "--bind-address=127.0.0.1", f"--cert-dir={folder}", *options]
    with (folder / f"{name}.log").open("wb") as log, subprocess.Popen(command, stdout=log, stderr=log) as process:
        try:
            yield
        finally:
            process.kill()


def _keys(folder: Path) -> tuple[Path, Path, Path]:
    """A serving certificate, its key, and the key of service accounts."""
    certificate, key, accounts = folder / "server.crt", folder / "server.key", folder / "accounts.key"
    names = "subjectAltName=IP:127.0.0.1"
    made = ["req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=test", "-addext", names]
    for command in ([*made, "-keyout", str(key), "-out", str(certificate)], ["genrsa", "-out", str(accounts), "2048"]):
        subprocess.run(["openssl", *command], check=True, capture_output=True)
    return certificate, key, accounts


def kubeconfig(folder: Path, url: str, certificate: Path | None = None) -> Path:
    """A file that leads its reader as an administrator to this URL; over HTTP there is no certificate."""
    named = {"name": "test"}
    cluster = {"server": url} | ({} if certificate is None else {"certificate-authority": str(certificate)})
    document = {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "test",
        "contexts": [named | {"context": {"cluster": "test", "user": "test"}}],
        "clusters": [named | {"cluster": cluster}],
        "users": [named | {"user": {"token": TOKEN}}],
    }
    path = folder / "kubeconfig"
    path.write_text(json.dumps(document))
    return path


def free_ports(count: int) -> list[int]:
    """Ports of 127.0.0.1 that are free now."""
    with ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(count)]
        for each in sockets:
            each.bind(("127.0.0.1", 0))
        return [int(each.getsockname()[1]) for each in sockets]


def _wait_until_ready(server: ApiServer, log: Path) -> None:
    """Until the namespace `default` exists, which the API server creates last."""
    end = time.monotonic() + START_SECONDS
    while time.monotonic() < end:
        try:
            if server.get("/api/v1/namespaces/default") is not None:
                return
        except OSError:  # it does not listen yet, or answers that it is not ready
            pass
        time.sleep(0.2)
    raise TimeoutError(f"no API server within {START_SECONDS:.0f} s:\n{log.read_text(errors='replace')[-2000:]}")
