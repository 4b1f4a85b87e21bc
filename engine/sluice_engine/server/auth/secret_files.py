"""The secrets of one server, its key file and its TLS certificate: loaded before it listens, followed while it runs."""

import logging
import ssl
from collections.abc import Callable, Coroutine, Mapping
from concurrent.futures import Executor
from pathlib import Path
from typing import Any, Final

from sluice import contract
from sluice.auth.access import AccessControl
from sluice.auth.gateway_token import GatewayToken, TokenInvalid
from sluice.auth.key_file import parse
from sluice.auth.key_store import KeyStore
from sluice.mounted_files import FileFault, MountedFiles, Reload, follow
from sluice_engine.server.auth.metrics import AccessMetrics
from sluice_engine.server.options import SecretPaths
from sluice_engine.server.transport.tls import TlsEndpoint, certificate_files

log = logging.getLogger("sluice.auth")
NO_WEIGHTS: Final[Mapping[str, float]] = {}


class SecretFiles:
    """`access` admits requests by the key file, `tls` is the certificate's endpoint; each has its file or does nothing."""

    def __init__(
        self,
        paths: SecretPaths,
        metrics: AccessMetrics,
        on_weights: Callable[[Mapping[str, float]], None],
    ) -> None:
        """`on_weights` receives the tenants' weights of each new key file. Raises FileFault."""
        self._metrics = metrics
        self._on_weights = on_weights
        self._key_files = None if paths.api_keys is None else MountedFiles((paths.api_keys,), _store)
        self._certificate_files: MountedFiles[ssl.SSLContext] | None = None
        self.tls: TlsEndpoint | None = None
        store = None if self._key_files is None else self._key_files.load()
        self.access = AccessControl(store, metrics.refused, gateway_token=_gateway_token(paths.gateway_token))
        self.weights = NO_WEIGHTS if store is None else store.weights
        if store is not None:
            metrics.keys_loaded(len(store))
        if paths.certificate is not None and paths.private_key is not None:
            self._certificate_files = certificate_files(paths.certificate, paths.private_key)
            self.tls = TlsEndpoint(self._certificate_files.load())

    def followers(self, threads: Executor) -> list[Coroutine[Any, Any, None]]:
        """Returns one coroutine per file that puts its changes in force, until cancelled."""
        found: list[Coroutine[Any, Any, None]] = []
        if self._key_files is not None:
            found.append(follow(self._key_files, self.on_keys, threads))
        if self._certificate_files is not None:
            found.append(follow(self._certificate_files, self.on_certificate, threads))
        return found

    def on_keys(self, reload: Reload[KeyStore]) -> None:
        """Puts a new key file in force for the next requests; those that run are not affected."""
        if reload.value is None:
            self._metrics.reload_failed(contract.FILE_API_KEYS)
            return
        self.access.replace(reload.value)
        self.weights = reload.value.weights
        self._on_weights(self.weights)
        self._metrics.keys_loaded(len(reload.value))
        self._metrics.reloaded(contract.FILE_API_KEYS)
        log.info("the key file has changed: %d keys are in force", len(reload.value))

    def on_certificate(self, reload: Reload[ssl.SSLContext]) -> None:
        """Hands new connections to the new certificate; open ones keep theirs."""
        if reload.value is None or self.tls is None:
            self._metrics.reload_failed(contract.FILE_TLS_CERTIFICATE)
            return
        self.tls.current = reload.value
        self._metrics.reloaded(contract.FILE_TLS_CERTIFICATE)
        log.info("the TLS certificate has changed: new connections use it")


def _gateway_token(path: Path | None) -> GatewayToken | None:
    """Raises FileFault."""
    try:
        return None if path is None else GatewayToken(path)
    except TokenInvalid as error:
        raise FileFault("invalid", str(error)) from error


def _store(contents: tuple[bytes, ...]) -> KeyStore:
    return KeyStore(parse(contents[0]))
