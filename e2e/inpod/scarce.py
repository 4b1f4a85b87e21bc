"""Runs in an engine's container: requests before, while and after the engine's process can allocate little memory.

Usage: scarce.py MODEL QUESTION

Meanwhile the soft limit of the process's address space is its present size and HEADROOM: the question needs less than that,
and the logprobs of a long prompt need more. The last line is JSON: {statuses: of the long request meanwhile and afterwards,
texts: the answers to the question before, BESIDE ones during the long request, and one after it, bytes: resident memory of
the process before and after it}.
"""

import json
import resource
import sys
import urllib.error
import urllib.request
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from sluice import contract

HEADROOM = 2 * 2**20  # bytes
BESIDE = 8
LONG = 2000  # tokens, whose logits are 8 MB
PROCESS = b"sluice_engine.core.process"


def post(path: str, **body: Any) -> tuple[int, Any]:
    """The HTTP status and the response to a request."""
    data = json.dumps({"model": sys.argv[1], "temperature": 0, **body}).encode()
    headers = {"Content-Type": "application/json"}
    request = urllib.request.Request(f"http://127.0.0.1:{contract.DATA_PORT}{path}", data=data, headers=headers)
    try:
        with urllib.request.urlopen(request, timeout=60) as answer:
            return answer.status, json.load(answer)
    except urllib.error.HTTPError as error:
        return error.code, json.load(error)


def asked() -> str:
    """The answer to the question, or the error."""
    status, answer = post("/v1/chat/completions", messages=[{"role": "user", "content": sys.argv[2]}], max_tokens=64)
    return str(answer["choices"][0]["message"]["content"] if status == 200 else answer)


def long() -> int:
    """The status of a long request."""
    prompt = [3 + 7 * number % 900 for number in range(LONG)]
    return post("/v1/completions", prompt=prompt, max_tokens=2, echo=True, logprobs=5)[0]


def engine() -> int:
    """The process that computes. Raises StopIteration if there is none."""
    numbers = [int(path.name) for path in Path("/proc").iterdir() if path.name.isdecimal()]
    return next(number for number in numbers if PROCESS in Path(f"/proc/{number}/cmdline").read_bytes().split(b"\0"))


def pages(process: int) -> tuple[int, int]:
    """Bytes of the address space of a process, and those that are resident."""
    size, resident = Path(f"/proc/{process}/statm").read_text().split()[:2]
    return int(size) * resource.getpagesize(), int(resident) * resource.getpagesize()


def main() -> None:
    """Send the requests and print the account."""
    process = engine()
    texts = [asked()]
    size, before = pages(process)
    _, most = resource.prlimit(process, resource.RLIMIT_AS)
    resource.prlimit(process, resource.RLIMIT_AS, (size + HEADROOM, most))
    try:
        with ThreadPoolExecutor(1) as beside:
            answers = [beside.submit(asked) for _ in range(BESIDE)]
            statuses = [long()]
            texts += [answer.result() for answer in answers]
        texts.append(asked())
        _, after = pages(process)
    finally:
        resource.prlimit(process, resource.RLIMIT_AS, (most, most))
    statuses.append(long())
    print(json.dumps({"statuses": statuses, "texts": texts, "bytes": [before, after]}))


if __name__ == "__main__":
    main()
