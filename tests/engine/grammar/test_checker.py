"""The process that compiles on trial: a hostile grammar costs it at most its time, and nobody else anything."""

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any

import pytest

from sluice_engine.grammar import Grammar, GrammarInvalid
from sluice_engine.grammar.checker import GrammarChecker

GOOD = Grammar("json_schema", '{"type":"object"}')


@pytest.fixture
async def checker() -> AsyncIterator[GrammarChecker]:
    checker = GrammarChecker(seconds=20.0)
    yield checker
    await checker.stop()


async def test_verdicts_are_kept_and_given_to_the_right_grammar(checker: GrammarChecker) -> None:
    bad = [Grammar("json_schema", json.dumps({"type": "array", "uniqueItems": True, "maxItems": n})) for n in range(20)]
    found = await asyncio.gather(
        *(checker.check(each) for pair in zip(bad, [GOOD] * 20, strict=True) for each in pair), return_exceptions=True
    )
    assert [isinstance(each, GrammarInvalid) for each in found] == [True, False] * 20
    await checker.stop()
    await checker.check(GOOD)
    assert checker._process is None, "a known verdict needs no process"


async def test_a_process_that_was_killed_is_started_again(checker: GrammarChecker) -> None:
    await checker.start()
    process = checker._process
    assert process is not None
    process.kill()
    await process.wait()
    await checker.check(GOOD)


async def test_a_compilation_that_takes_too_long_is_refused_and_the_next_one_is_judged() -> None:
    checker = GrammarChecker(seconds=0.0)
    try:
        with pytest.raises(GrammarInvalid, match="takes longer"):
            await checker.check(GOOD)
        checker._seconds = 20.0
        with pytest.raises(GrammarInvalid, match="uniqueItems"):
            await checker.check(Grammar("json_schema", '{"uniqueItems":true,"type":"array"}'))
    finally:
        await checker.stop()


async def test_a_cancelled_check_leaves_no_verdict_for_the_next(checker: GrammarChecker) -> None:
    await checker.start()
    first = asyncio.create_task(checker.check(Grammar("json_schema", '{"type":"array","uniqueItems":true}')))
    await asyncio.sleep(0)
    first.cancel()
    await asyncio.gather(first, return_exceptions=True)
    await checker.check(GOOD)


async def test_a_check_cancelled_while_the_process_starts_leaves_none_behind(
    checker: GrammarChecker, monkeypatch: pytest.MonkeyPatch
) -> None:
    created, create = asyncio.Event(), asyncio.create_subprocess_exec

    async def create_and_tell(*command: Any, **options: Any) -> asyncio.subprocess.Process:
        process = await create(*command, **options)
        created.set()
        return process

    monkeypatch.setattr(asyncio, "create_subprocess_exec", create_and_tell)
    first = asyncio.create_task(checker.check(GOOD))
    await created.wait()
    first.cancel()
    await asyncio.gather(first, return_exceptions=True)
    assert checker.pid is None
    for text, fault in (("a+", None), ("(", "unclosed|paren|group"), ("b+", None)):
        if fault is None:
            await checker.check(Grammar("regex", text))
        else:
            with pytest.raises(GrammarInvalid, match=fault):
                await checker.check(Grammar("regex", text))
