"""The process that compiles on trial: a hostile grammar costs it at most its time, and nobody else anything."""

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any

import pytest

from sluice_engine.grammar import Grammar, GrammarInvalid
from sluice_engine.grammar.checker import CheckerBusy, GrammarChecker, Trial

GOOD = Grammar("json_schema", '{"type":"object"}')
SLOW = Grammar(  # tens of milliseconds of processor time
    "json_schema",
    json.dumps(
        {
            "anyOf": [
                {
                    "type": "object",
                    "properties": {
                        f"f{number}_{place}": {"type": "string", "pattern": f"^[a-z]{{0,{50 + place}}}x{number}$"}
                        for place in range(10)
                    },
                }
                for number in range(90)
            ]
        }
    ),
)


@pytest.fixture
async def checker() -> AsyncIterator[GrammarChecker]:
    checker = GrammarChecker(seconds=20.0)
    yield checker
    await checker.stop()


async def test_verdicts_are_kept_and_given_to_the_right_grammar(checker: GrammarChecker) -> None:
    bad = [Grammar("json_schema", json.dumps({"type": "array", "uniqueItems": True, "maxItems": n})) for n in range(20)]
    found = await asyncio.gather(
        *(checker.trial().check(each) for pair in zip(bad, [GOOD] * 20, strict=True) for each in pair),
        return_exceptions=True,
    )
    assert [isinstance(each, GrammarInvalid) for each in found] == [True, False] * 20
    await checker.stop()
    await checker.trial().check(GOOD)
    assert checker._process is None, "a known verdict needs no process"


async def test_a_process_that_was_killed_is_started_again(checker: GrammarChecker) -> None:
    await checker.start()
    process = checker._process
    assert process is not None
    process.kill()
    await process.wait()
    await checker.trial().check(GOOD)


async def test_a_compilation_that_takes_too_long_is_refused_and_the_next_one_is_judged() -> None:
    checker = GrammarChecker(seconds=0.001)
    try:
        for _ in range(2):
            with pytest.raises(GrammarInvalid, match=r"takes longer than 0\.001 s of processor time"):
                await checker.trial().check(SLOW)
            assert checker.pid is None, "the process has ended, and a known verdict starts none"
        checker._seconds = 20.0
        with pytest.raises(GrammarInvalid, match="uniqueItems"):
            await checker.trial().check(Grammar("json_schema", '{"uniqueItems":true,"type":"array"}'))
    finally:
        await checker.stop()


async def test_the_grammars_of_a_request_share_their_time_and_another_request_has_its_own(
    checker: GrammarChecker,
) -> None:
    nearly_spent = Trial(checker, 0.001, asyncio.get_running_loop().time() + 60.0)
    with pytest.raises(GrammarInvalid, match="together with the request's others"):
        await nearly_spent.check(SLOW)
    await checker.trial().check(SLOW)


async def test_processor_time_is_charged_once(checker: GrammarChecker) -> None:
    assert (await checker.judge(SLOW, 20.0)).seconds > 0.0
    assert (await checker.judge(SLOW, 20.0)).seconds == 0.0


async def test_a_request_that_waits_too_long_for_others_may_come_again() -> None:
    checker = GrammarChecker(seconds=20.0, wait_seconds=0.0)
    try:
        with pytest.raises(CheckerBusy):
            await checker.trial().check(GOOD)
        checker._wait_seconds = 60.0
        await checker.trial().check(GOOD)
    finally:
        await checker.stop()


async def test_the_same_grammar_of_two_requests_is_compiled_once(checker: GrammarChecker) -> None:
    first, second = await asyncio.gather(checker.judge(SLOW, 20.0), checker.judge(SLOW, 20.0))
    assert first.seconds > 0.0 and second.seconds == 0.0


async def test_a_cancelled_check_leaves_no_verdict_for_the_next(checker: GrammarChecker) -> None:
    await checker.start()
    first = asyncio.create_task(checker.trial().check(Grammar("json_schema", '{"type":"array","uniqueItems":true}')))
    await asyncio.sleep(0)
    first.cancel()
    await asyncio.gather(first, return_exceptions=True)
    await checker.trial().check(GOOD)


async def test_a_check_cancelled_while_the_process_starts_leaves_none_behind(
    checker: GrammarChecker, monkeypatch: pytest.MonkeyPatch
) -> None:
    created, create = asyncio.Event(), asyncio.create_subprocess_exec

    async def create_and_tell(*command: Any, **options: Any) -> asyncio.subprocess.Process:
        process = await create(*command, **options)
        created.set()
        return process

    monkeypatch.setattr(asyncio, "create_subprocess_exec", create_and_tell)
    first = asyncio.create_task(checker.trial().check(GOOD))
    await created.wait()
    first.cancel()
    await asyncio.gather(first, return_exceptions=True)
    assert checker.pid is None
    for text, fault in (("a+", None), ("(", "unclosed|paren|group"), ("b+", None)):
        if fault is None:
            await checker.trial().check(Grammar("regex", text))
        else:
            with pytest.raises(GrammarInvalid, match=fault):
                await checker.trial().check(Grammar("regex", text))
