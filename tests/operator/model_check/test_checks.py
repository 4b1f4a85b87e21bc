"""A model is read once; a failed read is a reason and delays nothing twice."""

import asyncio

import pytest

from sluice.models.uri import HubModel, ModelUri
from sluice_operator.model_check import ModelChecks, ModelRecord, NotChecked, checks
from sluice_perfmodel.model_memory import facts_of
from tests.operator.fake_cluster import Clock

MODEL = HubModel("org/model")
PINNED = HubModel("org/model", "a" * 40)


class Reader:
    """Answers with `answer`, or never."""

    def __init__(self, answer: ModelRecord | Exception | None) -> None:
        self.answer, self.reads = answer, 0

    async def read(self, uri: ModelUri) -> ModelRecord:
        self.reads += 1
        if self.answer is None:
            await asyncio.Event().wait()
        if isinstance(self.answer, Exception):
            raise self.answer
        assert self.answer is not None
        return self.answer


FOUND = ModelRecord(facts_of({}, 1))


async def test_a_model_is_read_once_for_all_passes_and_again_after_its_time() -> None:
    reader, clock = Reader(FOUND), Clock()
    models = ModelChecks(reader, clock)
    assert models.known(MODEL) is None
    assert await asyncio.gather(*(models.look_up(MODEL) for _ in range(5))) == [FOUND] * 5
    assert (reader.reads, models.known(MODEL)) == (1, FOUND)
    await models.look_up(PINNED)
    clock.now += checks.AGAIN_SECONDS
    newer = reader.answer = ModelRecord(facts_of({}, 2))
    assert await models.look_up(MODEL) == FOUND  # the new read is in the background
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert (await models.look_up(MODEL), await models.look_up(PINNED)) == (newer, FOUND)
    assert reader.reads == 3


@pytest.mark.parametrize("error", [NotChecked("the hub is away"), RuntimeError("a bug")])
async def test_a_failed_read_is_a_reason_and_is_repeated_in_the_background(error: Exception) -> None:
    reader, clock = Reader(error), Clock()
    models = ModelChecks(reader, clock)
    assert isinstance(await models.look_up(MODEL), NotChecked)
    assert isinstance(await models.look_up(MODEL), NotChecked)
    assert reader.reads == 1
    reader.answer = FOUND
    clock.now += checks.FAILED_AGAIN_SECONDS
    await models.look_up(MODEL)
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert await models.look_up(MODEL) == FOUND
    reader.answer = error
    clock.now += checks.AGAIN_SECONDS
    await models.look_up(MODEL)
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert models.known(MODEL) == FOUND  # what was read before stays


async def test_a_hub_that_never_answers_delays_one_pass_to_the_deadline(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checks, "READ_SECONDS", 0.02)
    reader = Reader(None)
    models = ModelChecks(reader, Clock())
    found = await models.look_up(MODEL)
    assert isinstance(found, NotChecked) and "within" in str(found)
    assert isinstance(await models.look_up(MODEL), NotChecked) and reader.reads == 1
    await models.close()


async def test_the_number_of_kept_models_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checks, "MAX_MODELS", 2)
    models = ModelChecks(Reader(FOUND), Clock())
    for name in "abc":
        await models.look_up(HubModel(f"org/{name}"))
    assert models.known(HubModel("org/a")) is None and models.known(HubModel("org/c")) == FOUND
