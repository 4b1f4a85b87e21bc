"""The S3 client with its endpoint, region and credentials, from the environment variables of AWS's own tools.

Credentials are the first of: the mounted Secret of spec.model.credentialsSecretRef, AWS_ACCESS_KEY_ID, the file of
AWS_PROFILE, the role of a pod (web identity, container) or of an EC2 instance; without any, requests are anonymous.
"""

import os
import urllib.request
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

import certifi
import urllib3
from minio import Minio
from minio.credentials.credentials import Credentials
from minio.credentials.providers import AWSConfigProvider, EnvAWSProvider, IamAwsProvider, Provider, StaticProvider

from sluice import contract
from sluice_engine.sources.errors import SourceError

AWS: Final = "https://s3.amazonaws.com"
CONNECT_SECONDS: Final = 20.0
READ_SECONDS: Final = 60.0
CONNECTIONS: Final = 4  # kept open: as many as files are downloaded at once
METADATA_SECONDS: Final = 2.0  # for the instance's metadata, which other machines do not have
_ROLE_VARIABLES: Final = (
    "AWS_WEB_IDENTITY_TOKEN_FILE",
    "AWS_CONTAINER_CREDENTIALS_RELATIVE_URI",
    "AWS_CONTAINER_CREDENTIALS_FULL_URI",
)


def place_of() -> str:
    """The URL of the store."""
    return os.environ.get("AWS_ENDPOINT_URL_S3") or os.environ.get("AWS_ENDPOINT_URL") or AWS


def is_signed() -> bool:
    """True if there are credentials."""
    return _provider() is not None


def client_of() -> Minio:
    """A client for the store. Raises SourceError if the endpoint or the Secret is not valid.

    The client retries nothing: `fetch` does, and a download continues where it stopped.
    """
    place = urlsplit(place_of())
    if place.scheme not in ("http", "https") or not place.netloc or place.path not in ("", "/"):
        raise SourceError(
            contract.REASON_INVALID_OPTION,
            f"AWS_ENDPOINT_URL must be http(s)://host[:port] without a path; it is {place_of()!r}.",
        )
    region = os.environ.get("AWS_REGION") or os.environ.get("AWS_DEFAULT_REGION")
    if region is None and place_of() != AWS:
        region = "us-east-1"  # other stores take any; without it the client asks for the bucket's location
    return Minio(
        place.netloc,
        secure=place.scheme == "https",
        region=region,
        credentials=_provider(),
        http_client=_http(place.scheme, place.hostname or ""),
    )


def _http(scheme: str, host: str) -> urllib3.PoolManager:
    """Connections with the environment's proxy and certificates."""
    authorities = os.environ.get("AWS_CA_BUNDLE") or os.environ.get("SSL_CERT_FILE") or certifi.where()
    timeout = urllib3.Timeout(connect=CONNECT_SECONDS, read=READ_SECONDS)
    retries, most = urllib3.Retry(0), CONNECTIONS
    proxy = None if urllib.request.proxy_bypass(host) else urllib.request.getproxies().get(scheme)
    if proxy:
        return urllib3.ProxyManager(proxy, maxsize=most, timeout=timeout, retries=retries, ca_certs=authorities)
    return urllib3.PoolManager(maxsize=most, timeout=timeout, retries=retries, ca_certs=authorities)


def _provider() -> Provider | None:
    """The source of credentials; None for anonymous requests. Raises SourceError if the Secret is incomplete."""
    if folder := os.environ.get(contract.ENV_S3_CREDENTIALS):
        return _mounted(Path(folder))
    if os.environ.get("AWS_ACCESS_KEY_ID"):
        return EnvAWSProvider()
    if any(os.environ.get(name) for name in _ROLE_VARIABLES):
        return IamAwsProvider()
    instance = IamAwsProvider(http_client=urllib3.PoolManager(timeout=METADATA_SECONDS, retries=urllib3.Retry(0)))
    asks_instance = place_of() == AWS and os.environ.get("AWS_EC2_METADATA_DISABLED", "").lower() != "true"
    for provider in (AWSConfigProvider(), *((instance,) if asks_instance else ())):
        if _gives(provider):
            return provider
    return None


def _gives(provider: Provider) -> bool:
    try:
        return isinstance(provider.retrieve(), Credentials)
    except (ValueError, OSError, urllib3.exceptions.HTTPError):
        return False


def _mounted(folder: Path) -> Provider:
    """The credentials in a Secret's mounted entries, read anew each time: a corrected Secret needs no restart."""
    found = {name: _entry(folder / name) for name in contract.S3_CREDENTIALS}
    key, secret, session = (found[name] for name in contract.S3_CREDENTIALS)
    if not key or not secret:
        missing = [name for name in contract.S3_CREDENTIALS[:2] if not found[name]]
        raise SourceError(
            contract.REASON_SECRET_NOT_FOUND,
            f"The Secret of spec.model.credentialsSecretRef does not exist or has no entry {' and '.join(missing)}.",
        )
    return StaticProvider(key, secret, session or None)


def _entry(path: Path) -> str:
    try:
        return path.read_text().strip()
    except OSError:
        return ""
