"""Measures the step times of an engine: a load that varies batch and prompt sizes, then the model that the engine fitted.

The engine learns its step-time model online and publishes it on its admin port. A term is only as good as the load was
varied: so the load runs at several concurrencies, at each with short prompts and then with long ones, since the costs of
a sequence and of its KV tokens are told apart only where one varies without the other. No two prompts share a prefix.
"""

import math
import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Final
from urllib.parse import urlsplit

import aiohttp

from sluice import contract
from sluice.bench.load import BenchError, Load, Prompt
from sluice.bench.result import Result
from sluice.bench.run import run
from sluice_operator.autoscaler.values import EngineSample
from sluice_operator.engines.exposition import BadExposition, parse
from sluice_operator.engines.text_format import read_samples
from sluice_perfmodel.profile_file import MeasuredProfile, takes_time

CONCURRENCIES: Final = (1, 4, 16, 32)
LEAST_REQUESTS: Final = 8  # per part; else one per concurrent request
OUTPUT_TOKENS: Final = 32
PROMPT_TOKENS: Final = {"short": (16, 64), "long": (256, 1024)}  # wanted; shorter where the model's context is
LEAST_STEPS: Final = 64  # an engine's fit is a guess before
SECONDS: Final = 10.0  # for one call that is no completion
_LETTERS: Final = "abcdefghijklmnopqrstuvwxyz"


def default_admin_url(url: str) -> str:
    """The default admin port on the host of `url`."""
    host = urlsplit(url).hostname or "127.0.0.1"
    return f"http://{f'[{host}]' if ':' in host else host}:{contract.ADMIN_PORT}"


async def measure(
    load: Load,
    admin_url: str,
    date: str,
    say: Callable[[str], None],
    concurrencies: Sequence[int] = CONCURRENCIES,
) -> MeasuredProfile:
    """Load the engine at `load.url` and read its step-time model from `admin_url`.

    Of `load`, only the address, the model, the key, the seed and the timeout are used. `say` receives the progress.
    Raises BenchError.
    """
    _sample(await _scrape(admin_url))  # a wrong address is reported before the load
    load = replace(load, rate=None, duration=None, temperature=0.0, max_tokens=OUTPUT_TOKENS, ignore_eos=True)
    say("finding the size of a word in tokens")
    first = await _run(replace(load, prompts=_prompts(load.seed, (16,), 1), concurrency=1, requests=1))
    context = await _context(load)
    tokens_per_word = first[0].input_tokens / 16
    room = context - OUTPUT_TOKENS if context is not None else math.inf
    parts = [(concurrency, kind) for concurrency in concurrencies for kind in PROMPT_TOKENS]
    longest = 0
    for number, (concurrency, kind) in enumerate(parts, 1):
        requests = max(LEAST_REQUESTS, concurrency)
        say(f"part {number} of {len(parts)}: {requests} requests with {kind} prompts, {concurrency} at a time")
        words = tuple(max(1, int(min(size, 0.9 * room) / tokens_per_word)) for size in PROMPT_TOKENS[kind])
        prompts = _prompts(load.seed + number, words, requests)
        results = await _run(replace(load, prompts=prompts, concurrency=concurrency, requests=requests))
        longest = max(longest, *(result.input_tokens for result in results))
    return _profile(await _scrape(admin_url), load.base_url, date, longest)


def _prompts(seed: int, words: tuple[int, ...], count: int) -> tuple[Prompt, ...]:
    """Prompts of random words, so that no two share a prefix that a cache would skip."""
    rng = random.Random(f"profile/{seed}")

    def word() -> str:
        return "".join(rng.choices(_LETTERS, k=4))

    return tuple(Prompt(" ".join(word() for _ in range(words[index % len(words)]))) for index in range(count))


async def _run(load: Load) -> list[Result]:
    """The results of a load. Raises BenchError if a request failed, since its steps are not the planned ones."""
    results: list[Result] = []
    report = await run(load, results.append)
    if not report.ok:
        raise BenchError(f"The profile needs every request, and {report.failed} failed: {report.first_failures[0]}")
    return results


async def _context(load: Load) -> int | None:
    """The context of the model in tokens, if the server lists it."""
    headers = {"Authorization": f"Bearer {load.api_key}"} if load.api_key else None
    timeout = aiohttp.ClientTimeout(total=SECONDS)
    async with aiohttp.ClientSession(timeout=timeout, headers=headers) as session:
        try:
            async with session.get(load.base_url + contract.PATH_MODELS) as response:
                return int((await response.json())["data"][0]["max_model_len"])
        except (aiohttp.ClientError, TimeoutError, ValueError, LookupError, TypeError):
            return None


async def _scrape(admin_url: str) -> str:
    url = admin_url.rstrip("/") + contract.PATH_METRICS
    timeout = aiohttp.ClientTimeout(total=SECONDS)
    async with aiohttp.ClientSession(timeout=timeout) as session:
        try:
            async with session.get(url) as response:
                if response.status != 200:
                    raise BenchError(f"{url} answers {response.status}: name the admin port by --admin-url.")
                return await response.text()
        except (aiohttp.ClientError, TimeoutError) as failure:
            raise BenchError(
                f"{url} cannot be reached ({failure}): name the admin port of the engine by --admin-url."
            ) from failure


def _sample(text: str) -> EngineSample:
    """The metrics of an engine. Raises BenchError if they are of something else."""
    try:
        return parse(text)
    except BadExposition as error:
        raise BenchError(f"These are no metrics of an engine ({error}): name its admin port by --admin-url.") from error


def _profile(text: str, url: str, date: str, longest_prompt: int) -> MeasuredProfile:
    """The profile in an engine's metrics. Raises BenchError if they have none."""
    sample = _sample(text)
    paced = any(value for _, _, value in read_samples(text, (contract.PACED,)))
    info = dict(next(iter(read_samples(text, (contract.MODEL_INFO,))), ("", (), 0.0))[1])
    model = sample.step_model
    steps = 0 if model is None else model.steps
    if model is None or steps < LEAST_STEPS or not takes_time(model):
        raise BenchError(f"The engine's fit of {steps} steps is no profile yet: measure again, on a quiet machine.")
    pace = ", paced by --pace" if paced else ""
    words = (
        f"{info.get('model', 'unknown model')} ({info.get('dtype', 'unknown dtype')}) at {url}{pace}, measured {date}"
    )
    return MeasuredProfile(
        words=words,
        model=model,
        kv_tokens=int(sample.kv_blocks * sample.block_size),
        longest_prompt=longest_prompt,
    )


def lines(profile: MeasuredProfile, file: str) -> Iterator[str]:
    """The profile in words, and what to do with it."""
    model = profile.model
    yield f"{profile.words}: {model.steps} steps, predicted with a mean error of {model.error_ratio:.0%}"
    for name, value, unit, of in (
        ("base", model.base * 1e3, "ms", "per step"),
        ("sequence", model.sequence * 1e6, "µs", "per decoding sequence"),
        ("kv_token", model.kv_token * 1e9, "ns", "per KV token read"),
        ("prefill_token", model.prefill_token * 1e6, "µs", "per prompt token"),
        ("prefill_context", model.prefill_context * 1e9, "ns", "per prompt token and token before it"),
    ):
        yield f"  {name:15}  {value:8.2f} {unit} {of}"
    yield f"  {'KV cache':15}  {profile.kv_tokens:8d} tokens"
    yield f"Written to {file}. Use it: sluice simulate FILE.yaml --rate 1 --profile {file}"
