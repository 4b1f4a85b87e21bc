"""One client request: sends a prompt, retries as the official client does, and compares the output."""

import asyncio
import itertools
import random
import time
from collections.abc import Mapping
from dataclasses import dataclass, field

import aiohttp

from sluice import contract
from sluice.bench import retry
from sluice.bench.load import BenchError, Load, Prompt
from sluice.bench.result import FailureKind, Result
from sluice.completion_stream import Stream, StreamError, read


@dataclass(frozen=True, slots=True)
class _Failed:
    """Why an attempt failed, whether to retry, and the response headers."""

    kind: FailureKind
    message: str
    again: bool
    headers: Mapping[str, str] | None = None


@dataclass(slots=True)
class _Asked:
    """The state of one request in progress."""

    index: int
    prompt: Prompt
    due: float  # perf_counter seconds
    attempts: int = 0
    refusals: int = 0
    stream: Stream = field(default_factory=Stream)


async def model_name(session: aiohttp.ClientSession, load: Load) -> str:
    """The name of the model to request. Raises BenchError if the server does not list one."""
    if load.model is not None:
        return load.model
    url = load.base_url + contract.PATH_MODELS
    try:
        async with session.get(url, timeout=aiohttp.ClientTimeout(total=10)) as response:
            if response.status != 200:
                raise BenchError(f"{url} answers {response.status}: is this the data port of a ready engine?")
            return str((await response.json())["data"][0]["id"])
    except (aiohttp.ClientError, TimeoutError) as failure:
        raise BenchError(f"{url} cannot be reached ({failure}): check the address, or start a server.") from failure
    except (ValueError, KeyError, IndexError, TypeError) as wrong:
        raise BenchError(f"{url} names no model: give one with --model.") from wrong


async def ask(session: aiohttp.ClientSession, load: Load, model: str, index: int, due: float, start: float) -> Result:
    """Send request `index`, due at `due` of a load that started at `start` (perf_counter seconds).

    Raises nothing but CancelledError: every failure is in the result.
    """
    asked = _Asked(index, load.prompt(index), due)
    rng = random.Random(f"{load.seed}/retry/{index}")
    while True:
        failed = await _attempt(session, load, model, asked)
        if failed is None or not failed.again or asked.attempts > load.retries:
            return _result(asked, failed, start)
        await asyncio.sleep(retry.delay(asked.attempts - 1, failed.headers, rng))


async def _attempt(session: aiohttp.ClientSession, load: Load, model: str, asked: _Asked) -> _Failed | None:
    asked.attempts += 1
    asked.stream = Stream()
    answered = False  # after a 200 the official client does not retry
    body: dict[str, object] = {
        "model": model,
        "messages": [{"role": "user", "content": asked.prompt.text}],
        "max_tokens": load.max_tokens,
        "temperature": load.temperature,
        "stream": True,
        "stream_options": {"include_usage": True},
    }
    if load.ignore_eos:
        body["ignore_eos"] = True
    headers = {contract.HEADER_RETRY_COUNT: str(asked.attempts - 1)}
    url = load.base_url + contract.PATH_CHAT_COMPLETIONS
    try:
        async with session.post(url, json=body, headers=headers) as response:
            if response.status != 200:
                return await _refused(response, asked)
            answered = True
            await read(response.content.iter_any(), asked.stream)
    except StreamError as failure:
        return _Failed(failure.kind, str(failure), again=False)
    except (TimeoutError, aiohttp.ClientError, OSError) as failure:
        if not asked.stream.done:
            late = isinstance(failure, TimeoutError)
            kind: FailureKind = "timeout" if late else "no_done" if answered else "connection"
            return _Failed(kind, f"{type(failure).__name__}: {failure}", again=not answered)
    expect = asked.prompt.expect
    if expect is not None and not asked.stream.matches(expect):
        message = f"{asked.prompt.text!r} was answered {asked.stream.text!r} instead of {expect!r}"
        return _Failed("mismatch", message, again=False)
    return None


async def _refused(response: aiohttp.ClientResponse, asked: _Asked) -> _Failed:
    said = (await response.content.read(2000)).decode(errors="replace")
    refused = response.status in retry.REFUSALS
    asked.refusals += refused
    kind: FailureKind = "refused" if refused else "status"
    again = retry.should_retry(response.status, response.headers)
    return _Failed(kind, f"status {response.status}: {said[:300]}", again, response.headers)


def _result(asked: _Asked, failed: _Failed | None, start: float) -> Result:
    times = asked.stream.times
    return Result(
        index=asked.index,
        arrival=asked.due - start,
        failure=failed.kind if failed else None,
        message=failed.message if failed else "",
        text=asked.stream.text,
        input_tokens=asked.stream.input_tokens,
        # A server that reports no usage: the number of text pieces stands for the number of tokens.
        output_tokens=asked.stream.output_tokens or len(times),
        ttft=times[0] - asked.due if times else None,
        gaps=tuple(later - earlier for earlier, later in itertools.pairwise(times)),
        seconds=time.perf_counter() - asked.due,
        attempts=asked.attempts,
        refusals=asked.refusals,
    )
