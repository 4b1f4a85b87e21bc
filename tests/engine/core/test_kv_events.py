"""The events of a real engine whose steps overlap: what they have named and not removed is what its pool has."""

import random
from pathlib import Path

from sluice_engine import messages
from sluice_engine.core.engine import EngineLoop
from sluice_engine.kvcache.block_pool import extend_hashes
from sluice_engine.sampling_params import SamplingParams
from tests.engine.oracle import options

BLOCK = 16


def prompts() -> list[tuple[int, ...]]:
    """Prompts that begin with one of three texts, in a pool that holds few of them."""
    draw = random.Random(3)
    texts = [[draw.randrange(2, 60) for _ in range(160)] for _ in range(3)]
    return [
        tuple(draw.choice(texts)[: draw.randrange(1, 160)] + [draw.randrange(2, 60)] * draw.randrange(40))
        for _ in range(60)
    ]


def test_a_reader_of_an_engine_with_overlapping_steps_knows_its_pool(tiny_llama: Path) -> None:
    engine = EngineLoop(options(tiny_llama, kv_size=512 << 10, block_size=BLOCK, max_num_seqs=4, max_model_length=256))
    engine.follow_kv(messages.FollowKv(True))
    asked = dict(enumerate(filter(len, prompts())))
    for number, prompt in asked.items():
        sampling = SamplingParams(max_tokens=1 + number % 5, temperature=0.0, ignore_eos=True)
        engine.submit(messages.Submit(f"r{number}", prompt, sampling, 0.0, prompt_tag=f"t-{number}"))
        if number % 7 == 0:
            engine.cancel(messages.Cancel(f"r{number}", "abort"))
    named: dict[int, bytes] = {}
    told, removed = set[str](), 0
    while engine.has_work:
        engine.step()
        found = engine.take_kv_events()
        for event in () if found is None else found.events:
            if isinstance(event, messages.KvRemoved):
                removed += len(event.blocks)
                for block in event.blocks:
                    del named[block]
            else:
                told.add(event.tag)
                hashes: list[bytes] = []
                extend_hashes(hashes, asked[int(event.tag.removeprefix("t-"))], BLOCK)
                assert len(event.blocks) == len(hashes)
                named |= dict(zip(event.blocks, hashes, strict=True))
    pool = engine.scheduler.pool
    assert told == {f"t-{number}" for number in asked if number % 7}
    assert removed > 0
    assert {block: pool.find([digest]) for block, digest in named.items()} == {block: (block,) for block in named}
    engine.follow_kv(messages.FollowKv(False))
    assert engine.take_kv_events() is None
