"""Runs in a pod: conversations by the official `openai` client with its defaults, each text compared with its reference.

Usage: official.py REFERENCES.json MODEL URL CLIENTS SECONDS [REQUESTS [opening]]

It ends after SECONDS or REQUESTS, or once the file STOP exists. `opening` asks for the first tokens of each answer only.
A request fails when the client raises, when its stream has no finish reason, or when the text is another one. The last
line is JSON: {requests, failed, slowest_first_token, seconds}.
"""

import asyncio
import itertools
import json
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from openai import AsyncOpenAI, OpenAIError

STOP = Path("/tmp/stop")


class Account:
    """What all clients have seen."""

    def __init__(self) -> None:
        self.requests = 0
        self.failed: list[str] = []
        self.slowest_first_token = 0.0


async def ask(client: AsyncOpenAI, model: str, reference: dict[str, Any], account: Account) -> None:
    """One streamed answer."""
    asked, question = time.monotonic(), reference["question"]
    account.requests += 1
    pieces: list[str] = []
    finished = None
    try:
        stream = await client.chat.completions.create(
            model=model,
            messages=[{"role": "user", "content": question}],
            max_tokens=reference["max_tokens"],
            temperature=0,
            stream=True,
        )
        async for chunk in stream:
            if not pieces:
                account.slowest_first_token = max(account.slowest_first_token, time.monotonic() - asked)
            for choice in chunk.choices:
                pieces.append(choice.delta.content or "")
                finished = choice.finish_reason or finished
    except OpenAIError as error:
        account.failed.append(f"{question!r} after {time.monotonic() - asked:.1f} s: {type(error).__name__}: {error}")
        return
    if finished is None or "".join(pieces) != reference["text"]:
        account.failed.append(f"{question!r}: got {''.join(pieces)!r}, {finished}, instead of {reference['text']!r}")


async def converse(url: str, model: str, references: Iterator[dict[str, Any]], account: Account) -> None:
    """One client, one request after the other."""
    async with AsyncOpenAI(base_url=f"{url}/v1", api_key="none") as client:
        while not STOP.exists() and (reference := next(references, None)) is not None:  # noqa: ASYNC240 - on a tmpfs
            await ask(client, model, reference, account)


async def main(
    found: list[dict[str, Any]],
    model: str,
    url: str,
    clients: str,
    seconds: str,
    requests: str = "1000000",
    of: str = "",
) -> None:
    """Run all clients from the same moment on, and print their account."""
    started, account = time.monotonic(), Account()
    short = itertools.cycle({**one, **(one["opening"] if of else {})} for one in found if not one["ignore_eos"])
    limited = itertools.islice(short, int(requests))
    references = itertools.takewhile(lambda _: time.monotonic() < started + float(seconds), limited)
    await asyncio.gather(*(converse(url, model, references, account) for _ in range(int(clients))))
    told = vars(account) | {"seconds": time.monotonic() - started}
    print(json.dumps({name: round(value, 1) if isinstance(value, float) else value for name, value in told.items()}))


if __name__ == "__main__":
    asyncio.run(main(json.loads(Path(sys.argv[1]).read_text()), *sys.argv[2:]))
