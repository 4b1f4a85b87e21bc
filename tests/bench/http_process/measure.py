"""What the HTTP process costs: streamed tokens per core, time to the first token, long prompts, 10,000 requests, API keys.

The engine behind it is the null engine, so that every figure is the HTTP process's own. Tokens per core are by its
processor time, which other load on the machine changes little; the other figures are wall clock.
"""

import http.client
import json
import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Final

from sluice_engine import tiny
from tests.bench.http_process import clients
from tests.bench.http_process.clients import Load, Seen
from tests.bench.http_process.server import Served, served
from tests.bench.report.row import Report, Row, at_least, at_most
from tests.bench.report.show import Part, Say
from tests.engine.server.auth.keys import bearer, entry, key_file
from tests.engine.serving import JSON

LEAST_TOKENS: Final = 20_000.0  # per second of processor time
MOST_TTFT_MS: Final = (1.0, 3.0)  # p50, p99
MOST_HELD_MS: Final = 50.0
MOST_LIVEZ_MS: Final = 50.0
MOST_GROWTH: Final = 0.05  # of resident memory, between rounds of 10,000 requests
MOST_KEYS_MS: Final = 0.2
STREAMS, STREAM_TOKENS, STEP_SECONDS = 256, 1000, 0.015
RATE, REQUESTS, WARM_UP = 100.0, 2000, 200
LONG_TOKENS, LONG_PROMPTS = 128_000, 8
PARALLEL, ROUNDS = 10_000, 6
KEYS, PAIRS = 10_000, 2000
QUESTION: Final = b'{"model": "tiny", "prompt": "What is the KV cache?"}'
FAST: Final = 0.0005  # seconds between steps where the engine shall add nothing
ALLOWED: Final = frozenset({200, 429, 503})

Measure = Callable[[Path, Path], tuple[list[Row], dict[str, object]]]  # (model, log of the server) → rows, data


def _part(name: str, measure: Measure) -> Part:
    def report(out: Path, _: Say) -> Report:
        out.mkdir(parents=True, exist_ok=True)
        rows, data = measure(tiny.ensure(), out / f"{name}.log")
        return Report(rows, data)

    return Part(name, report)


def _body(prompt: str, tokens: int, *, stream: bool = True) -> str:
    given = {"model": "tiny", "prompt": prompt, "max_tokens": tokens, "stream": stream, "ignore_eos": True}
    return json.dumps(given)


def _streams(model: Path, log: Path) -> tuple[list[Row], dict[str, object]]:
    """Every token is an event of its own: each step sends one to every stream."""
    with served(model, log, step_seconds=STEP_SECONDS) as server:
        clients.run(Load(server.port, _body("A replica is", 50), STREAMS, STREAMS))
        before = server.processor_seconds
        seen = clients.run(Load(server.port, _body("A replica is", STREAM_TOKENS), STREAMS, STREAMS))
        used = server.processor_seconds - before
    tokens = STREAMS * STREAM_TOKENS
    if seen.statuses != {200: STREAMS}:
        raise RuntimeError(f"{STREAMS} streams ended with {seen.statuses}")
    row = at_least(f"streamed tokens per second and core, {STREAMS} streams", tokens / used, LEAST_TOKENS)
    written: dict[str, object] = {
        "tokens": tokens,
        "events": seen.events,
        "seconds": seen.seconds,
        "processor_seconds": used,
    }
    return [row], written


def _first_token(model: Path, log: Path) -> tuple[list[Row], dict[str, object]]:
    """The same requests go in turn to the HTTP process and, by the engine's protocol, to a null engine of their own. The
    difference of the percentiles is what the HTTP process adds.
    """
    body = _body("The scheduler admits requests by its KV cache. " * 8, clients.DIRECT_TOKENS)
    with served(model, log, step_seconds=STEP_SECONDS) as server:
        load = Load(server.port, body, 100, REQUESTS, RATE, direct_step_seconds=STEP_SECONDS)
        clients.run(replace(load, requests=WARM_UP))
        seen = clients.run(load)
    whole, direct = _percentiles(seen.first_event), _percentiles(seen.direct_first)
    name = f"added to the time to the first token at {RATE:.0f} requests/s"
    rows = [
        at_most(f"{name}, {percentile}", with_http - without, most, " ms")
        for percentile, with_http, without, most in zip(("p50", "p99"), whole, direct, MOST_TTFT_MS, strict=True)
    ]
    return rows, {"with_http_ms": whole, "without_ms": direct, "statuses": seen.statuses}


def _long_prompts(model: Path, log: Path) -> tuple[list[Row], dict[str, object]]:
    """`/livez` is asked every 2 ms meanwhile: its longest answer bounds how long the event loop was held."""
    prompt = "The scheduler admits requests by its KV cache. " * (LONG_TOKENS // 8)
    with served(model, log, step_seconds=FAST) as server:
        clients.run(Load(server.port, _body("A replica is", 1), 4, 4))
        tokens = _count(server, prompt)
        prompt = prompt[: len(prompt) * LONG_TOKENS // tokens]
        load = Load(
            server.port, _body(prompt, 4), 1, LONG_PROMPTS, 2.0, polled_port=server.admin_port, poll_seconds=0.002
        )
        seen = clients.run(load)
        tokens = _count(server, prompt)
    if seen.statuses != {200: LONG_PROMPTS}:
        raise RuntimeError(f"{LONG_PROMPTS} long prompts ended with {seen.statuses}")
    held = 1000 * max(seen.livez)
    name = f"longest hold of the event loop under {LONG_PROMPTS} prompts of {tokens:,} tokens"
    return [at_most(name, held, MOST_HELD_MS, " ms")], {"held_ms": held, "tokens": tokens}


def _parallel(model: Path, log: Path) -> tuple[list[Row], dict[str, object]]:
    """10,000 requests at once, in rounds. Resident memory after the same load differs by some percent, so the largest of
    the first half is compared with the largest of the second.
    """
    rounds: list[Seen] = []
    resident: list[int] = []
    with served(model, log, step_seconds=0.02) as server:
        load = Load(server.port, _body("A replica is", 8), PARALLEL, PARALLEL, polled_port=server.admin_port)
        for _ in range(ROUNDS):
            rounds.append(clients.run(load))
            resident.append(server.resident_bytes)
    statuses: dict[int, int] = {}
    for seen in rounds:
        for status, count in seen.statuses.items():
            statuses[status] = statuses.get(status, 0) + count
    others = sum(count for status, count in statuses.items() if status not in ALLOWED)
    growth = max(resident[ROUNDS // 2 :]) / max(resident[: ROUNDS // 2]) - 1
    _, livez = _percentiles([seconds for seen in rounds for seconds in seen.livez])
    rows = [
        Row(f"{PARALLEL:,} parallel requests, {ROUNDS} rounds", ", ".join(f"{n:,} × {s}" for s, n in statuses.items())),
        at_most("of these, with another status than 200, 429 and 503", others, 0),
        at_most(
            "growth of resident memory from the first to the last three rounds", 100 * growth, 100 * MOST_GROWTH, " %"
        ),
        at_most("p99 of /livez meanwhile", livez, MOST_LIVEZ_MS, " ms"),
    ]
    return rows, {"statuses": statuses, "resident_bytes": resident, "livez_p99_ms": livez}


def _keys(model: Path, log: Path) -> tuple[list[Row], dict[str, object]]:
    """POST /tokenize of a server with 10,000 keys and of one without, in pairs, so that other load meets both. A request
    finds its key, takes from the rates of its tenant, and gets the headers of both.
    """
    file = log.with_suffix(".yaml")
    file.write_bytes(key_file(*(entry(f"t{n}", requestsPerMinute=10**9, tokensPerMinute=10**9) for n in range(KEYS))))
    options = {"api-keys-file": str(file)}
    with (
        served(model, log, step_seconds=FAST) as plain,
        served(model, log.with_suffix(".keys.log"), step_seconds=FAST, options=options) as keyed,
        _connection(plain.port) as one,
        _connection(keyed.port) as other,
    ):
        pairs = [(_milliseconds(one), _milliseconds(other)) for _ in range(PAIRS)]
    added = statistics.median(keys - without for without, keys in pairs)
    return [at_most(f"added by {KEYS:,} API keys", added, MOST_KEYS_MS, " ms")], {"added_ms": added}


@contextmanager
def _connection(port: int) -> Iterator[http.client.HTTPConnection]:
    with closing(http.client.HTTPConnection("127.0.0.1", port)) as connection:
        yield connection


def _milliseconds(connection: http.client.HTTPConnection) -> float:
    begun = time.perf_counter()
    connection.request("POST", "/tokenize", QUESTION, JSON | {"Authorization": bearer("t9999")})
    answer = connection.getresponse()
    answer.read()
    if answer.status != 200:
        raise RuntimeError(f"status {answer.status}")
    return (time.perf_counter() - begun) * 1000


def _count(server: Served, prompt: str) -> int:
    """Tokens of the prompt."""
    with _connection(server.port) as connection:
        body = json.dumps({"model": "tiny", "prompt": prompt})
        connection.request("POST", "/tokenize", body, JSON)
        return int(json.loads(connection.getresponse().read())["count"])


def _percentiles(seconds: Sequence[float]) -> tuple[float, float]:
    """p50 and p99 in milliseconds."""
    ordered = sorted(seconds)
    return 1000 * ordered[len(ordered) // 2], 1000 * ordered[min(len(ordered) - 1, len(ordered) * 99 // 100)]


PARTS: Final = (
    _part("http-streams", _streams),
    _part("http-first-token", _first_token),
    _part("http-long-prompts", _long_prompts),
    _part("http-parallel", _parallel),
    _part("http-keys", _keys),
)
