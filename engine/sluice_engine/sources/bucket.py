"""Models of an S3 bucket, by the `minio` client: AWS and every store of its protocol (AWS_ENDPOINT_URL).

`minio` and not boto3, because botocore excludes the python-dateutil that the Kubernetes client asks for. Imported in the
download's own process only.
"""

import hashlib
import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from itertools import islice
from pathlib import Path
from typing import Final

import urllib3
from minio import Minio
from minio.error import InvalidResponseError, MinioException, S3Error, ServerError

from sluice import contract
from sluice.models.uri import S3Model
from sluice_engine.sources.bucket_access import client_of, is_signed, place_of
from sluice_engine.sources.errors import SourceError, write_failed
from sluice_engine.sources.snapshot import RemoteFile, Snapshot, choose

CHUNK: Final = 1 << 18  # bytes that a killed or stalled transfer loses at most
MOST_OBJECTS: Final = 10_000  # of a listing; a model has hundreds at most

_DENIED: Final = frozenset(
    ("AccessDenied", "AllAccessDisabled", "InvalidAccessKeyId", "SignatureDoesNotMatch", "ExpiredToken", "InvalidToken")
)
_WRONG_REGION: Final = frozenset(("AuthorizationHeaderMalformed", "PermanentRedirect", "IllegalLocationConstraint"))
_THROTTLED: Final = frozenset(("SlowDown", "RequestLimitExceeded", "TooManyRequests", "Throttling"))


class Bucket:
    """One model of a bucket: the objects under a prefix, or one GGUF object. Its methods raise SourceError."""

    def __init__(self, uri: S3Model) -> None:
        self._uri = uri
        self._is_file = uri.prefix.endswith(".gguf")
        self._folder = uri.prefix.rpartition("/")[0] if self._is_file else uri.prefix
        self._client: Minio = client_of()

    def resolve(self) -> Snapshot:
        """The files of the model now. S3 has no revision: it is the digest of their names, sizes and ETags."""
        with _translated(self._uri):
            prefix = self._uri.prefix if self._is_file or not self._folder else f"{self._folder}/"
            found = list(islice(self._list(prefix), MOST_OBJECTS + 1))
        if len(found) > MOST_OBJECTS:
            raise SourceError(
                contract.REASON_MODEL_INVALID,
                f"{self._uri} holds more than {MOST_OBJECTS:,} objects. Name the prefix of the model's own folder.",
            )
        only = self._uri.prefix.rpartition("/")[2] if self._is_file else None
        chosen = choose(str(self._uri), found, only)
        return Snapshot(str(self._uri), revision_of(chosen), chosen)

    def download(self, snapshot: Snapshot, file: RemoteFile, part: Path) -> None:
        """Continues `part` until it holds the whole object, provided that the object is still the listed one."""
        with (
            _translated(self._uri, cache=part.parent),
            part.open("r+b" if part.exists() else "w+b") as target,
        ):
            there = target.seek(0, os.SEEK_END)
            if there > file.size:
                there = target.seek(0)
                target.truncate()
            if there == file.size:
                return
            answer = self._client.get_object(
                self._uri.bucket, self._key(file), offset=there, request_headers={"If-Match": f'"{file.etag}"'}
            )
            try:
                for chunk in answer.stream(CHUNK):
                    target.write(chunk)
            finally:
                answer.close()
                answer.release_conn()

    def head(self, snapshot: Snapshot, file: RemoteFile, size: int) -> bytes:
        """The first `size` bytes of an object, or the whole shorter one."""
        with _translated(self._uri):
            answer = self._client.get_object(self._uri.bucket, self._key(file), length=size)
            try:
                return answer.read(size)
            finally:
                answer.close()
                answer.release_conn()

    def _list(self, prefix: str) -> Iterator[RemoteFile]:
        start = len(self._folder) + 1 if self._folder else 0
        for entry in self._client.list_objects(self._uri.bucket, prefix=prefix, recursive=True):
            if entry.object_name and not entry.is_dir and entry.size is not None:
                yield RemoteFile(entry.object_name[start:], entry.size, etag=(entry.etag or "").strip('"'))

    def _key(self, file: RemoteFile) -> str:
        return f"{self._folder}/{file.name}" if self._folder else file.name


def revision_of(files: Iterable[RemoteFile]) -> str:
    """40 hex digits that change when a file is added, removed or replaced."""
    lines = sorted(f"{file.name}\0{file.size}\0{file.etag}\n" for file in files)
    return hashlib.sha256("".join(lines).encode()).hexdigest()[:40]


@contextmanager
def _translated(uri: S3Model, cache: Path | None = None) -> Iterator[None]:
    """Turns the library's errors into a SourceError with its reason and remedy."""
    try:
        yield
    except MinioException as error:
        raise _refusal(uri, error) from error
    except (urllib3.exceptions.ProtocolError, urllib3.exceptions.ReadTimeoutError) as error:
        raise SourceError(
            contract.REASON_DOWNLOAD_FAILED,
            f"A file of {uri} did not arrive whole: {error}. The download continues where it stopped.",
            transient=True,
        ) from error
    except urllib3.exceptions.HTTPError as error:
        raise SourceError(
            contract.REASON_SOURCE_UNREACHABLE,
            f"{place_of()} cannot be reached for {uri}: {error}. Check the network and proxy, or name the store with "
            f"AWS_ENDPOINT_URL.",
            transient=True,
        ) from error
    except OSError as error:
        raise write_failed(cache or Path(), error) from error
    except ValueError as error:  # a name that the library refuses before any request
        raise SourceError(contract.REASON_INVALID_OPTION, f"{uri} is not valid: {error}.") from error


def _refusal(uri: S3Model, error: MinioException) -> SourceError:
    code = (error.code or "") if isinstance(error, S3Error) else ""
    status = _status(error)
    place = place_of()
    if code in ("NoSuchBucket", "InvalidBucketName"):
        return SourceError(
            contract.REASON_MODEL_NOT_FOUND,
            f"{place} has no bucket {uri.bucket}. Check its name, and AWS_ENDPOINT_URL.",
        )
    if code == "NoSuchKey":
        return SourceError(
            contract.REASON_DOWNLOAD_FAILED, f"A file of {uri} was removed during the download.", transient=True
        )
    if code == "PreconditionFailed":
        return SourceError(
            contract.REASON_DOWNLOAD_FAILED,
            f"A file of {uri} was replaced during the download. It begins again with the new one.",
            transient=True,
        )
    if code in _WRONG_REGION:
        return SourceError(
            contract.REASON_INVALID_OPTION,
            f"The bucket {uri.bucket} is in another region. Set AWS_REGION to its region.",
        )
    if code in _THROTTLED or status == 429:
        return SourceError(
            contract.REASON_RATE_LIMITED,
            f"{place} limits the rate of requests ({code or status}). The download is tried again.",
            transient=True,
        )
    if code in _DENIED or status in (401, 403):
        return SourceError(contract.REASON_MODEL_ACCESS_DENIED, _denial(uri, code or str(status)))
    return SourceError(
        contract.REASON_DOWNLOAD_FAILED,
        f"{place} answered {code or status or error} for {uri}. The download is tried again.",
        transient=True,
    )


def _status(error: MinioException) -> int:
    """The HTTP status of an answer; 0 if it has none."""
    match error:
        case S3Error():
            return error.response.status
        case ServerError():
            return error.status_code
        case InvalidResponseError():
            return int(error._code)  # the library keeps it nowhere else
    return 0


def _denial(uri: S3Model, code: str) -> str:
    where = "AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or spec.model.credentialsSecretRef in a cluster"
    if not is_signed():
        return f"Access without credentials is refused to {uri} ({code}). Set {where}."
    if code == "AccessDenied":
        return f"These credentials do not give access to {uri} ({code}): they need s3:ListBucket and s3:GetObject."
    return f"The credentials for {uri} are not valid ({code}). Correct {where}."
