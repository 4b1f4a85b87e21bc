"""The same requests give the same tokens however they are computed: graph or eager, alone or batched, cold or warm, sampled
on the device or on the CPU. In float32, where the order of sums changes nothing but ties.
"""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from bench.serving import models
from bench.serving.drive import Text, prompts, started, submit, texts

from sluice_engine.backend.cpu.backend import CpuBackend
from sluice_engine.core.engine import EngineLoop

OUTPUT = 24
CLOSE = 1e-3  # logprobs nearer than this may be swapped by the order of sums
SAMPLED: dict[str, object] = {"temperature": 0.8, "top_p": 0.9, "top_k": 40}
DIFFERING = 0.05  # of the sampled texts at most: a draw within rounding of a border between tokens
OPTIONS: dict[str, object] = {"kv_size": 16 << 20, "max_num_seqs": 16, "dtype": "float32"}
Load = Callable[[EngineLoop], dict[str, Text]]


class Different(AssertionError):
    """The tokens of two computations differ."""


@dataclass(frozen=True)
class Requests:
    """Prompts that are submitted together, or one after the other."""

    prompts: list[list[int]]

    def together(self, engine: EngineLoop, **sampling: object) -> dict[str, Text]:
        """Their texts; each request has a seed of its own."""
        for index, prompt in enumerate(self.prompts):
            submit(engine, str(index), prompt, OUTPUT, logprobs=2, seed=index, **sampling)
        return texts(engine)

    def alone(self, engine: EngineLoop) -> dict[str, Text]:
        """The same with one request at a time."""
        found: dict[str, Text] = {}
        for index, prompt in enumerate(self.prompts):
            submit(engine, str(index), prompt, OUTPUT, logprobs=2)
            found |= texts(engine)
        return found


def check(device: str, folder: Path, *, small: bool) -> None:
    """Prints a line per comparison. Raises Different after the last one if any differs."""
    models.save_small(folder)
    requests = Requests(prompts(6 if small else 40, (1, 120), models.SMALL.vocab_size, seed=1))
    graphs = started(folder, models.on_device(device), **OPTIONS)
    batched = requests.together(graphs)
    warm = requests.together(graphs)
    if not any(text.cached for text in warm.values()):
        raise Different("warm: no prompt was found in the prefix cache")
    apart = started(folder, models.on_device(device), **OPTIONS)
    eager = started(folder, models.on_device(device, graphs=False), **OPTIONS)
    reference = started(folder, CpuBackend(), **OPTIONS)
    sampled = requests.together(graphs, **SAMPLED), requests.together(reference, **SAMPLED)
    faults = [
        *greedy("graph and eager", batched, requests.together(eager)),
        *greedy("alone and batched", batched, requests.alone(apart)),
        *greedy("cold and warm", batched, warm),
        *drawn("sampled on the device and on the CPU", *sampled),
    ]
    if faults:
        raise Different("; ".join(faults))


def greedy(what: str, want: dict[str, Text], got: dict[str, Text]) -> list[str]:
    """A sentence for each text that differs where its two likeliest tokens are not almost equal."""
    found = []
    for name, text in want.items():
        at = first_difference(text.tokens, got[name].tokens)
        if at is None:
            continue
        best = dict(text.top[at])
        gap = max(best.values()) - best.get(got[name].tokens[at], -float("inf"))
        if gap > CLOSE:
            found.append(f"{what}: request {name} differs at token {at}, whose logprobs are {gap:.4f} apart")
    print(f"{what}: {len(want) - len(found)} of {len(want)} texts are equal")
    return found


def drawn(what: str, want: dict[str, Text], got: dict[str, Text]) -> list[str]:
    """A sentence if more than a few texts differ."""
    differing = [name for name in want if want[name].tokens != got[name].tokens]
    print(f"{what}: {len(want) - len(differing)} of {len(want)} texts are equal")
    return [f"{what}: requests {', '.join(differing)} differ"] if len(differing) > DIFFERING * len(want) else []


def first_difference(want: list[int], got: list[int]) -> int | None:
    """Index of the first token that differs, None for equal texts. Raises Different for texts of different lengths."""
    if len(want) != len(got):
        raise Different(f"a text has {len(got)} tokens, expected {len(want)}")
    return next((index for index, pair in enumerate(zip(want, got, strict=True)) if pair[0] != pair[1]), None)
