"""Models of a Hugging Face hub, by `huggingface_hub`: its endpoint (HF_ENDPOINT), token, redirects, retries and errors.

Files are streamed by the library's `http_get` into files of the cache, because `hf_hub_download` begins a file again
after its process was killed. Imported in the download's own process only, which has set the library's environment.
"""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path, PurePosixPath
from typing import Final

import httpx2
from huggingface_hub import HfApi, constants, get_token, hf_hub_url
from huggingface_hub.errors import (
    DisabledRepoError,
    EntryNotFoundError,
    GatedRepoError,
    HfHubHTTPError,
    OfflineModeIsEnabled,
    RepositoryNotFoundError,
    RevisionNotFoundError,
)
from huggingface_hub.file_download import http_get
from huggingface_hub.hf_api import RepoFile
from huggingface_hub.utils import (  # type: ignore[attr-defined]  # documented, exported without __all__
    build_hf_headers,
    get_session,
    hf_raise_for_status,
)

from sluice import contract
from sluice.models.uri import HubModel
from sluice_engine.sources.errors import SourceError, write_failed
from sluice_engine.sources.snapshot import RemoteFile, Snapshot, choose

CHUNK: Final = 1 << 18  # bytes that a killed or stalled transfer loses at most
REQUEST_SECONDS: Final = 20.0  # for the answer of a hub's API

constants.DOWNLOAD_CHUNK_SIZE = CHUNK


class Hub:
    """One model of a hub. Its methods raise SourceError."""

    def __init__(self, uri: HubModel) -> None:
        """Raises SourceError if the endpoint or the token is not valid."""
        if not constants.ENDPOINT.startswith(("http://", "https://")):
            raise SourceError(
                contract.REASON_INVALID_OPTION,
                f"HF_ENDPOINT must be a URL such as https://huggingface.co; it is {constants.ENDPOINT!r}.",
            )
        self._uri = uri
        self._token = _token()

    def resolve(self) -> Snapshot:
        """The commit that the revision names now, and its files."""
        with _translated(self._uri, signed_in=self._token is not None):
            api = HfApi(token=self._token or False)
            commit = api.model_info(self._uri.repo, revision=self._uri.revision, timeout=REQUEST_SECONDS).sha
            if commit is None:
                raise SourceError(
                    contract.REASON_DOWNLOAD_FAILED, f"The hub gave no commit for {self._uri}.", transient=True
                )
            listing = [
                RemoteFile(entry.path, entry.size, entry.lfs.sha256 if entry.lfs else None)
                for entry in api.list_repo_tree(self._uri.repo, revision=commit, recursive=True)
                if isinstance(entry, RepoFile)
            ]
        chosen = choose(str(self._uri), listing, self._uri.file)
        return Snapshot(str(self._uri), commit, tuple(replace(f, name=self._local_name(f.name)) for f in chosen))

    def download(self, snapshot: Snapshot, file: RemoteFile, part: Path) -> None:
        """Continues `part` until it holds the whole file."""
        url = hf_hub_url(self._uri.repo, self._uri.file or file.name, revision=snapshot.revision)
        headers = {**build_hf_headers(token=self._token or False), "Accept-Encoding": "identity"}
        with (
            _translated(self._uri, signed_in=self._token is not None, cache=part.parent),
            part.open("r+b" if part.exists() else "w+b") as target,
        ):
            there = target.seek(0, os.SEEK_END)
            if there > file.size:
                there = target.seek(0)
                target.truncate()
            http_get(url, target, resume_size=there, headers=headers, expected_size=file.size)

    def head(self, snapshot: Snapshot, file: RemoteFile, size: int) -> bytes:
        """The first `size` bytes of a file, or the whole shorter one."""
        url = hf_hub_url(self._uri.repo, self._uri.file or file.name, revision=snapshot.revision)
        asked = {"Accept-Encoding": "identity", "Range": f"bytes=0-{size - 1}"}
        headers = {**build_hf_headers(token=self._token or False), **asked}
        found = bytearray()
        with (
            _translated(self._uri, signed_in=self._token is not None),
            get_session().stream("GET", url, headers=headers, timeout=REQUEST_SECONDS) as answer,
        ):
            hf_raise_for_status(answer)
            for chunk in answer.iter_bytes():
                found += chunk
                if len(found) >= size:
                    break
        return bytes(found[:size])

    def _local_name(self, name: str) -> str:
        return PurePosixPath(name).name if self._uri.file else name


def _token() -> str | None:
    """The user's token. Raises SourceError if its file does not exist, or if no header can carry it."""
    named = os.environ.get("HF_TOKEN_PATH")
    if named and not os.environ.get("HF_TOKEN") and not Path(named).is_file():
        raise SourceError(
            contract.REASON_SECRET_NOT_FOUND,
            f"There is no token at {named}: the Secret of spec.model.tokenSecretRef, or its key, does not exist.",
        )
    token = get_token()
    if token is not None and not (token.isascii() and token.isprintable()):
        raise SourceError(
            contract.REASON_MODEL_ACCESS_DENIED,
            "The token of the hub has characters that no token has. Copy it again: it begins with hf_ and has letters and "
            "digits only.",
        )
    return token


@contextmanager
def _translated(uri: HubModel, *, signed_in: bool, cache: Path | None = None) -> Iterator[None]:
    """Turns the library's errors into a SourceError with its reason and remedy."""
    try:
        yield
    except (HfHubHTTPError, EntryNotFoundError) as error:
        raise _refusal(uri, error, signed_in) from error
    except OfflineModeIsEnabled as error:
        raise _unreachable(uri, "HF_HUB_OFFLINE is set") from error
    except (httpx2.HTTPError, httpx2.InvalidURL) as error:
        raise _unreachable(uri, str(error) or type(error).__name__) from error
    except OSError as error:
        if error.errno is not None:
            raise write_failed(cache or Path(), error) from error
        raise SourceError(
            contract.REASON_DOWNLOAD_FAILED, f"A file of {uri} did not arrive whole: {error}", transient=True
        ) from error


def _unreachable(uri: HubModel, cause: str) -> SourceError:
    return SourceError(
        contract.REASON_SOURCE_UNREACHABLE,
        f"{constants.ENDPOINT} cannot be reached for {uri}: {cause.rstrip('.')}. Check the network and proxy, or name a mirror with "
        f"HF_ENDPOINT.",
        transient=True,
    )


def _refusal(uri: HubModel, error: Exception, signed_in: bool) -> SourceError:
    response = getattr(error, "response", None)
    status = 0 if response is None else response.status_code
    secret = "set HF_TOKEN or, in a cluster, spec.model.tokenSecretRef"
    if isinstance(error, RevisionNotFoundError):
        return SourceError(
            contract.REASON_REVISION_NOT_FOUND,
            f"{uri.repo} has no revision {uri.revision or 'of its default branch'}. Name one of its branches, tags or "
            f"commits after the @.",
        )
    if isinstance(error, GatedRepoError):
        step = "with the account of this token" if signed_in else f"and then give a token: {secret}"
        return SourceError(
            contract.REASON_MODEL_ACCESS_DENIED,
            f"{uri.repo} is gated. Accept its terms at {constants.ENDPOINT}/{uri.repo} {step}.",
        )
    if status in (401, 403) or isinstance(error, DisabledRepoError):
        what = "The token does not give access to" if signed_in else "Access without a token is refused to"
        return SourceError(
            contract.REASON_MODEL_ACCESS_DENIED,
            f"{what} {uri.repo} ({status}): it is private, or it does not exist. Check the name; for a private model, "
            f"give a token with read access to it: {secret}.",
        )
    if isinstance(error, RepositoryNotFoundError | EntryNotFoundError) or status == 404:
        return SourceError(
            contract.REASON_MODEL_NOT_FOUND, f"{constants.ENDPOINT} has no model {uri.repo}. Check the name."
        )
    if status == 429:
        wait = _retry_after(response.headers) if response is not None else None
        return SourceError(
            contract.REASON_RATE_LIMITED,
            f"{constants.ENDPOINT} limits the rate of requests (429). The download is tried again; a token raises the "
            f"limit: {secret}.",
            transient=True,
            retry_after=wait,
        )
    return SourceError(
        contract.REASON_DOWNLOAD_FAILED,
        f"{constants.ENDPOINT} answered {status} for {uri}. The download is tried again.",
        transient=True,
    )


def _retry_after(headers: httpx2.Headers) -> float | None:
    text = headers.get("Retry-After", "")
    return float(text) if text.isdecimal() else None
