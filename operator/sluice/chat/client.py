"""Asks the server, and turns each failure into a sentence for the user."""

import json
from collections.abc import Callable
from typing import Self

import aiohttp

from sluice import contract
from sluice.chat.conversation import Conversation
from sluice.completion_stream import Stream, StreamError, read

CONNECT_SECONDS = 10.0


class ChatError(Exception):
    """A question has no complete answer. The message is a sentence with the reason and what to do."""


class Server:
    """An OpenAI API at `url`, without `/v1`. Use as an async context manager."""

    def __init__(self, url: str, api_key: str | None) -> None:
        self.url = url
        headers = {"Authorization": f"Bearer {api_key}"} if api_key else {}
        timeout = aiohttp.ClientTimeout(total=None, sock_connect=CONNECT_SECONDS)
        self._session = aiohttp.ClientSession(headers=headers, timeout=timeout)
        self._model: str | None = None

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._session.close()

    async def model(self, chosen: str | None) -> str:
        """The chosen model, or the first one that the server lists. Raises ChatError."""
        if chosen is not None:
            return chosen
        if self._model is None:
            self._model = await self._first_model()
        return self._model

    async def answer(
        self,
        conversation: Conversation,
        question: str,
        stream: Stream,
        on_text: Callable[[str], None],
        on_reasoning: Callable[[str], None],
    ) -> None:
        """Read the answer to `question` into `stream`. Raises ChatError."""
        body = conversation.request(await self.model(conversation.choices.model), question)
        try:
            async with self._session.post(self.url + contract.PATH_CHAT_COMPLETIONS, json=body) as response:
                if response.status == 404:
                    self._model = None  # a restarted server may serve another one
                if response.status != 200:
                    raise ChatError(await self._refusal(response))
                await read(response.content.iter_any(), stream, on_text, on_reasoning)
        except StreamError as error:
            why = "the server closed the connection" if error.kind == "no_done" else str(error).rstrip(".")
            raise ChatError(f"The answer broke off: {why}. Ask again.") from error
        except (aiohttp.ClientError, OSError) as error:
            if stream.times:
                raise ChatError("The answer broke off: the server closed the connection. Ask again.") from error
            raise ChatError(self._unreachable(error)) from error

    async def _first_model(self) -> str:
        try:
            async with self._session.get(self.url + contract.PATH_MODELS) as response:
                if response.status != 200:
                    raise ChatError(await self._refusal(response))
                return str(json.loads(await response.read())["data"][0]["id"])
        except (aiohttp.ClientError, OSError) as error:
            raise ChatError(self._unreachable(error)) from error
        except (ValueError, LookupError, TypeError) as error:
            raise ChatError(f"{self.url} lists no model: name one with --model.") from error

    def _unreachable(self, error: Exception) -> str:
        cause = error.os_error if isinstance(error, aiohttp.ClientConnectorError) else error
        why = str(error) or type(error).__name__
        if isinstance(cause, ConnectionRefusedError):
            why = "connection refused"
        elif isinstance(error, aiohttp.ClientConnectorDNSError):
            why = "unknown host"
        elif isinstance(error, TimeoutError):
            why = f"no connection within {CONNECT_SECONDS:.0f} s"
        return f"{self.url} cannot be reached ({why}): start a server, or name another with --url."

    async def _refusal(self, response: aiohttp.ClientResponse) -> str:
        try:
            message = str(json.loads(await response.read())["error"]["message"]).strip()
        except (ValueError, KeyError, TypeError):
            message = response.reason or "no reason given"
        if response.status == 401:
            return f"{message} Give the key with --api-key, or in OPENAI_API_KEY."
        wait = response.headers.get(contract.HEADER_RETRY_AFTER, "")
        if response.status in (429, 503) and wait.isdigit():
            return f"{message} Ask again in {wait} s."
        return f"The server answered {response.status}: {message}"
