"""A real server whose Secrets are replaced while it serves: by a symlink to a new folder, as the kubelet does it."""

import http.client
import json
import os
import ssl
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from sluice import contract
from tests.engine.server.auth.keys import bearer, entry, key_file
from tests.engine.serving import CHAT, JSON, Served, body, serving

CERTIFICATES = Path(__file__).with_name("certificates")
MANY = [entry(f"t{number}") for number in range(10_000)]
CLIENTS = 4


@dataclass
class Mount:
    """A mounted Secret. `put` replaces all its files at once."""

    folder: Path
    version: int = 0

    def put(self, **files: bytes) -> None:
        self.version += 1
        new = self.folder / f"v{self.version}"
        new.mkdir(parents=True)
        for name, content in files.items():
            (new / name.replace("_", ".")).write_bytes(content)
        link = self.folder / "new"
        link.symlink_to(new)
        link.rename(self.folder / "data")

    def put_certificate(self, name: str, key: str = "") -> None:
        certificate, private = CERTIFICATES / f"{name}.crt", CERTIFICATES / f"{key or name}.key"
        self.put(tls_crt=certificate.read_bytes(), tls_key=private.read_bytes())


@dataclass
class Secured:
    """A server with 10,000 API keys and TLS, and its mounted Secrets."""

    served: Served
    keys: Mount
    tls: Mount

    def ask(self, name: str, certificate: str = "first") -> int:
        """The status of a short chat with this key over a new connection, which trusts only this certificate."""
        trust = ssl.create_default_context(cafile=CERTIFICATES / f"{certificate}.crt")
        with closing(http.client.HTTPSConnection("127.0.0.1", self.served.port, timeout=120, context=trust)) as client:
            client.request("POST", CHAT, json.dumps(body(2)), JSON | {"Authorization": bearer(name)})
            answer = client.getresponse()
            complete = answer.read().endswith(b"data: [DONE]\n\n")
            return answer.status if answer.status != 200 or complete else 0

    def wait_for(self, metric: str, file: str, value: float) -> None:
        self.served.wait(lambda: self.served.metric(metric, file=file) == value)


@pytest.fixture(scope="module")
def secured(tiny_model: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secured]:
    folder = tmp_path_factory.mktemp("secured")
    keys, tls = Mount(folder / "keys"), Mount(folder / "tls")
    keys.put(keys_yaml=key_file(*MANY))
    tls.put_certificate("first")
    options = ["--api-keys-file", f"{keys.folder}/data/keys.yaml"]
    options += ["--tls-cert-file", f"{tls.folder}/data/tls.crt", "--tls-key-file", f"{tls.folder}/data/tls.key"]
    with serving(tiny_model, folder / "log", *options) as served:
        yield Secured(served, keys, tls)


def test_ten_thousand_keys_are_replaced_under_load_without_a_failed_request(secured: Secured) -> None:
    assert secured.served.metric(contract.API_KEYS) == 10_000
    assert [secured.ask(name) for name in ("t0", "t9999", "t10000")] == [200, 200, 401]
    stop, statuses = threading.Event(), list[int]()

    def client() -> None:
        while not stop.is_set():
            statuses.append(secured.ask("t7"))

    threads = [threading.Thread(target=client) for _ in range(CLIENTS)]
    for thread in threads:
        thread.start()
    try:
        secured.keys.put(keys_yaml=key_file(*MANY[1:], entry("t10000")))
        secured.wait_for(contract.MOUNTED_FILE_RELOADS, contract.FILE_API_KEYS, 1)
        assert [secured.ask(name) for name in ("t0", "t10000")] == [401, 200]
        secured.keys.put(keys_yaml=b"- {name: t7, sha256: sk-a-key-in-the-wrong-place}")
        secured.wait_for(contract.MOUNTED_FILE_FAULT, contract.FILE_API_KEYS, 1)
        assert secured.served.metric(contract.API_KEYS) == 10_000
        secured.keys.put(keys_yaml=key_file(entry("t7")))
        secured.wait_for(contract.MOUNTED_FILE_FAULT, contract.FILE_API_KEYS, 0)
    finally:
        stop.set()
        for thread in threads:
            thread.join()
    assert secured.ask("t10000") == 401
    assert len(statuses) >= CLIENTS and set(statuses) == {200}
    log = secured.served.log.read_text()
    assert "entry 1 ('t7'), sha256" in log
    assert "wrong-place" not in log and "key-of-" not in log


def test_a_new_certificate_is_used_by_new_connections_and_a_wrong_one_by_none(secured: Secured) -> None:
    secured.keys.put(keys_yaml=key_file(entry("t7")))
    assert secured.ask("t7", "first") == 200
    secured.tls.put_certificate("second", key="first")  # not its key
    secured.wait_for(contract.MOUNTED_FILE_FAULT, contract.FILE_TLS_CERTIFICATE, 1)
    assert secured.ask("t7", "first") == 200
    secured.tls.put_certificate("second")
    secured.wait_for(contract.MOUNTED_FILE_RELOADS, contract.FILE_TLS_CERTIFICATE, 1)
    assert secured.ask("t7", "second") == 200
    with pytest.raises(ssl.SSLCertVerificationError):
        secured.ask("t7", "first")


@pytest.mark.parametrize(
    ("files", "reason", "sentence"),
    [
        ({}, "SecretNotFound", "keys.yaml: there is no such file."),
        ({"keys_yaml": b"- {name: a}"}, "SecretInvalid", "keys.yaml: entry 1 ('a'): it has no sha256."),
        ({"keys_yaml": b""}, "SecretInvalid", "keys.yaml: it must be a YAML list"),
    ],
)
def test_a_server_does_not_start_without_its_keys_and_tells_the_operator_why(
    tmp_path: Path, files: dict[str, bytes], reason: str, sentence: str
) -> None:
    mount, report = Mount(tmp_path / "keys"), tmp_path / "termination"
    mount.put(**files)
    command = [sys.executable, "-m", "sluice", "serve", str(tmp_path), "--port", "0", "--admin-port", "0"]
    command += ["--api-keys-file", f"{mount.folder}/data/keys.yaml"]
    env = os.environ | {contract.ENV_TERMINATION_MESSAGE: str(report), "PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run(command, check=False, env=env, capture_output=True)
    assert done.returncode == contract.EXIT_CONFIG
    assert sentence in done.stderr.decode()
    written: dict[str, Any] = json.loads(report.read_bytes())
    assert written["reason"] == reason and sentence in written["message"]
