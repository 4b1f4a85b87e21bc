"""Reads a model of a Hugging Face hub: its listing, config.json, and the headers of its first and last weights.

Without a token: the operator reads no Secret of a model's namespace, so gated and private models are not checked. Only
the operator's own hub is asked, because an address from a spec would let its author send requests from the operator.
"""

import asyncio
import json
from typing import Any, Final
from urllib.parse import quote

import aiohttp

from sluice.models.files import (
    LENGTH_BYTES,
    MAX_HEADER_BYTES,
    HeaderInvalid,
    header_length,
    loaded_names,
    parse_header,
)
from sluice.models.uri import ClaimModel, HubModel, ModelUri, S3Model
from sluice_operator.model_check.record import ADAPTER, ModelRecord, NotChecked, adapter_record, record_of

CONFIG: Final = "config.json"
MAX_BODY_BYTES: Final = 4 << 20  # of a listing or a config
CONNECTIONS: Final = 8


class HubReader:
    """`ModelReader` over HTTP; proxies are those of the environment."""

    def __init__(self, endpoint: str) -> None:
        """endpoint: the hub's URL; empty: models of hubs are not read."""
        self._endpoint = endpoint.rstrip("/")
        self._slots = asyncio.Semaphore(CONNECTIONS)

    async def read(self, uri: ModelUri) -> ModelRecord:
        """Raises NotChecked. The caller sets the deadline."""
        if not isinstance(uri, HubModel):
            raise NotChecked(_elsewhere(uri))
        if uri.file is not None:
            raise NotChecked("it is a GGUF file")
        if not self._endpoint:
            raise NotChecked("the operator is set up to read no hub")
        try:
            async with self._slots, aiohttp.ClientSession(trust_env=True) as session:
                return await self._read(session, uri)
        except aiohttp.ClientError as error:
            raise NotChecked(f"{self._endpoint} cannot be reached by the operator ({type(error).__name__})") from error
        except (ValueError, KeyError, TypeError, asyncio.IncompleteReadError) as error:
            raise NotChecked(f"{self._endpoint} gave an unexpected answer") from error

    async def _read(self, session: aiohttp.ClientSession, uri: HubModel) -> ModelRecord:
        api = f"{self._endpoint}/api/models/{uri.repo}"
        revision = "" if uri.revision is None else f"/revision/{quote(uri.revision, safe='')}"
        commit = str(json.loads(await self._get(session, f"{api}{revision}"))["sha"])
        listing = json.loads(await self._get(session, f"{api}/tree/{quote(commit, safe='')}"))
        sizes = {str(entry["path"]): int(entry["size"]) for entry in listing if entry["type"] == "file"}
        names = loaded_names(sizes)
        if ADAPTER in sizes and not names:
            return adapter_record()
        if not names or CONFIG not in sizes:
            raise NotChecked("it holds no config.json or no safetensors")
        files = f"{self._endpoint}/{uri.repo}/resolve/{quote(commit, safe='')}/"
        config = await self._get(session, files + CONFIG)
        read = {name: await self._header(session, files + quote(name)) for name in {names[0], names[-1]}}
        headers = [(read.get(name, read[names[0]]), sizes[name] - LENGTH_BYTES) for name in names]
        return await asyncio.to_thread(_record, config, frozenset(sizes), headers)

    async def _get(self, session: aiohttp.ClientSession, url: str) -> bytes:
        """The body of a page. Raises NotChecked."""
        async with session.get(url) as answer:
            self._check(answer)
            body = bytearray()
            async for chunk in answer.content.iter_any():
                body += chunk
                if len(body) > MAX_BODY_BYTES:
                    break
            if "next" in answer.links or len(body) > MAX_BODY_BYTES:
                raise NotChecked(f"{self._endpoint} gave a listing or a config that is too long")
            return bytes(body)

    async def _header(self, session: aiohttp.ClientSession, url: str) -> bytes:
        """The header of a safetensors file, without its length. Raises NotChecked."""
        wanted = {"Range": f"bytes=0-{LENGTH_BYTES + MAX_HEADER_BYTES}", "Accept-Encoding": "identity"}
        async with session.get(url, headers=wanted) as answer:
            self._check(answer)
            length = header_length(await answer.content.readexactly(LENGTH_BYTES))
            return await answer.content.readexactly(length)

    def _check(self, answer: aiohttp.ClientResponse) -> None:
        if answer.status in (401, 403):
            raise NotChecked(f"{self._endpoint} refuses access without a token, and the operator reads no token")
        if answer.status not in (200, 206):
            raise NotChecked(f"{self._endpoint} answered {answer.status}")


def _record(config: bytes, names: frozenset[str], headers: list[tuple[bytes, int]]) -> ModelRecord:
    try:
        parsed: dict[bytes, dict[str, Any]] = {text: parse_header(text) for text in {text for text, _ in headers}}
    except HeaderInvalid as error:
        raise NotChecked("its weights are no safetensors") from error
    return record_of(config, names, [(parsed[text], max(0, size - len(text))) for text, size in headers])


def _elsewhere(uri: ModelUri) -> str:
    if isinstance(uri, ClaimModel):
        return "only the pods can read the claim"
    if isinstance(uri, S3Model):
        return "only the pods have access to the bucket"
    return "only the pods can read the path"
