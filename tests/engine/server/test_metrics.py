"""The bookkeeping behind `/metrics`, driven by messages and an injected clock."""

import msgspec
import pytest

from sluice import contract
from sluice_engine import messages
from sluice_engine.config import engine_options
from sluice_engine.limits import at_start
from sluice_engine.server.metrics import EngineMetrics
from sluice_perfmodel.shadow_queues import LOAD_NAMES

OPTIONS = engine_options(model="m", served_name="m", itl_target=0.1, ttft_target=1.0)


class Story:
    """Metrics with a clock that the test advances."""

    def __init__(self) -> None:
        self.now = 100.0
        self.metrics = EngineMetrics(OPTIONS, clock=lambda: self.now)

    def step(self, *deltas: messages.Delta, after: float = 0.05, held: int = 0, seconds: float = 0.05) -> None:
        self.now += after
        self.take(self.report(*deltas, held=held, seconds=seconds))

    def take(self, report: messages.StepReport) -> None:
        self.metrics.on_step(report, self.now)
        self.metrics.on_report(report)

    def report(self, *deltas: messages.Delta, held: int = 0, seconds: float = 0.05) -> messages.StepReport:
        return messages.StepReport(
            deltas=deltas, ended_at=self.now, seconds=seconds, prefill_tokens=0, prefill_context=0.0,
            sequences=len(deltas), kv_tokens=0, generated_tokens=len(deltas), prompt_tokens=0,
            cached_prompt_tokens=0, preemptions=0, running=len(deltas), waiting=0, tokens_in_flight=0,
            blocks_held=held, blocks_cached=0, blocks_free=10 - held, limits=at_start(OPTIONS.limits),
            model=(0.01, 0.0, 0.0, 0.0, 0.0), model_error=0.1, model_steps=3,
        )  # fmt: skip

    def value(self, series: str) -> float:
        for line in self.metrics.render().decode().splitlines():
            name, _, value = line.rpartition(" ")
            if name == series:
                return float(value)
        raise KeyError(series)

    def slo(self) -> dict[str, float]:
        found = {result: self.value(f'{contract.SLO_REQUESTS}{{result="{result}"}}') for result in contract.SLO_RESULTS}
        return {result: value for result, value in found.items() if value}


def token(finish: messages.FinishReason | None = None) -> messages.Delta:
    return messages.Delta("a", (5,), finish, queue_seconds=0.2)


@pytest.mark.parametrize(
    ("first", "gap", "result"),
    [(0.5, 0.05, "met"), (1.5, 0.05, "missed_ttft"), (0.5, 0.2, "missed_itl"), (1.5, 0.2, "missed_both")],
)
def test_a_completed_request_is_compared_with_the_targets_in_force(first: float, gap: float, result: str) -> None:
    story = Story()
    story.metrics.started(["a"], story.now, 7)
    story.step(token(), after=first)
    story.step(token(), after=gap)
    story.step(token("length"), after=gap)
    assert story.slo() == {result: 1.0}
    assert story.value(f'{contract.REQUESTS}{{outcome="length"}}') == 1
    assert story.value(f"{contract.TIME_TO_FIRST_TOKEN}_sum") == pytest.approx(first)
    assert story.value(f"{contract.INTER_TOKEN_LATENCY}_count") == 2
    assert story.value(f"{contract.TIME_PER_OUTPUT_TOKEN}_sum") == pytest.approx(gap)
    assert story.value(f"{contract.OUTPUT_TOKENS}_sum") == 3
    assert story.value(f"{contract.PROMPT_TOKENS}_sum") == 7
    assert story.value(f"{contract.QUEUE_SECONDS}_sum") == pytest.approx(0.2)


def test_aborted_failed_and_rejected_requests_never_count_as_met() -> None:
    story = Story()
    for name in ("a", "b", "c"):
        story.metrics.started([name], story.now, 1)
    story.step(token())
    story.metrics.ended("a", "abort")
    story.metrics.ended("a", "error")  # the second call has no effect
    story.metrics.ended("b", "error")
    story.metrics.on_rejected(messages.Rejected("c", "queue_full", 1.0, "full"))
    story.metrics.rejected_unsubmitted("draining")
    assert story.slo() == {}
    counts = {outcome: story.value(f'{contract.REQUESTS}{{outcome="{outcome}"}}') for outcome in contract.OUTCOMES}
    assert counts == {"stop": 0, "length": 0, "abort": 1, "error": 1, "rejected": 2}
    assert story.value(contract.REQUESTS_ARRIVED) == 4
    assert story.value(f'{contract.REJECTIONS}{{reason="queue_full"}}') == 1
    assert story.value(f'{contract.REJECTIONS}{{reason="draining"}}') == 1


def test_a_handler_that_ends_a_request_before_its_last_step_is_recorded_does_not_change_the_record() -> None:
    story = Story()
    story.metrics.started(["a"], story.now, 7)
    story.metrics.on_step(story.report(token()), story.now + 0.5)
    assert story.metrics.pending_prompt_tokens() == 0
    story.now += 0.6
    story.metrics.on_step(story.report(token("length")), story.now)
    story.metrics.ended("a", "abort")
    assert story.slo() == {"met": 1.0}
    assert story.value(f'{contract.REQUESTS}{{outcome="length"}}') == 1
    assert story.value(f'{contract.REQUESTS}{{outcome="abort"}}') == 0
    assert story.value(f"{contract.TIME_TO_FIRST_TOKEN}_sum") == pytest.approx(0.5)


def test_a_request_offered_to_another_replica_before_is_no_second_arrival() -> None:
    story = Story()
    story.metrics.started(["a"], story.now, 7, offered_before=True)
    story.step(token("stop"))
    story.metrics.rejected_unsubmitted("draining", offered_before=True)
    assert story.value(contract.REQUESTS_ARRIVED) == 0
    assert story.value(f'{contract.REQUESTS}{{outcome="stop"}}') == 1
    assert story.value(f'{contract.REJECTIONS}{{reason="draining"}}') == 1


def test_shadow_counts_add_up_from_the_first_scrape_on() -> None:
    story = Story()
    late = [f'{contract.SHADOW_LATE}{{load="{name}"}}' for name in LOAD_NAMES]
    names = [contract.SHADOW_REQUESTS, contract.SHADOW_UNREACHABLE, *late]
    assert [story.value(name) for name in names] == [0.0] * len(names)
    counts = messages.ShadowCounts(3, 1, tuple(0.25 * index for index in range(len(LOAD_NAMES))))
    for report in (story.report(), story.report(seconds=0.0)):
        story.take(msgspec.structs.replace(report, shadow=counts))
        story.step()
    assert [story.value(name) for name in names] == [6.0, 2.0, *(0.5 * index for index in range(len(late)))]


def test_a_request_with_several_samples_counts_once() -> None:
    story = Story()
    story.metrics.started(["a", "b"], story.now, 7)
    story.step(token(), messages.Delta("b", (5,), queue_seconds=0.2), after=0.5)
    story.step(token("stop"), messages.Delta("b", (5,)), after=0.2)
    assert story.value(f'{contract.REQUESTS}{{outcome="stop"}}') == 0  # one sample is unfinished
    story.step(messages.Delta("b", (5,), "length"), after=0.4)
    assert story.value(contract.REQUESTS_ARRIVED) == 1
    assert story.value(f'{contract.REQUESTS}{{outcome="length"}}') == 1
    for name in (contract.TIME_TO_FIRST_TOKEN, contract.QUEUE_SECONDS, contract.REQUEST_DURATION):
        assert story.value(f"{name}_count") == 1
    assert story.value(f"{contract.PROMPT_TOKENS}_sum") == 7
    assert story.value(f"{contract.OUTPUT_TOKENS}_sum") == 5
    assert story.value(f"{contract.INTER_TOKEN_LATENCY}_count") == 3
    assert story.value(f"{contract.TIME_PER_OUTPUT_TOKEN}_sum") == pytest.approx(0.8 / 3)


def test_a_text_answered_with_a_vector_has_no_inter_token_time() -> None:
    story = Story()
    story.metrics.started(["a"], story.now, 7)
    story.step(messages.Delta("a", (), "stop", queue_seconds=0.2, vector=b"\0" * 8), after=0.5)
    assert story.slo() == {"met": 1.0}
    assert story.value(f"{contract.TIME_TO_FIRST_TOKEN}_sum") == pytest.approx(0.5)
    assert story.value(f"{contract.TIME_PER_OUTPUT_TOKEN}_count") == 0


def test_block_seconds_count_what_gauges_miss_between_scrapes() -> None:
    story = Story()
    story.step(held=4, after=1.0, seconds=0.5)  # 4 blocks during half a second
    story.step(held=0, after=1.0, seconds=0.5)  # held until this step ended
    story.step(held=0, after=100.0, seconds=0.0)  # idle
    assert story.value(contract.KV_BLOCK_SECONDS) == pytest.approx(4 * 0.5 + 4 * 1.0)
    assert story.value(contract.BUSY_SECONDS) == pytest.approx(1.0)
    assert story.value(f"{contract.STEP_SECONDS}_count") == 2


def test_readiness_fills_the_infos_and_load_phases() -> None:
    story = Story()
    story.metrics.on_loading(messages.Loading("load", 0.5, 3.0))
    assert story.value(f'{contract.LOAD_PHASE_SECONDS}{{phase="load"}}') == 3.0
    story.metrics.on_ready(
        messages.Ready(
            dtype="float32", device="cpu", block_size=16, num_blocks=10, max_model_length=64, vocab_size=9,
            paced=True, load_seconds={"load": 4.0, "warm": 1.0},
        )
    )  # fmt: skip
    assert story.value(f'{contract.LOAD_PHASE_SECONDS}{{phase="warm"}}') == 1.0
    assert story.value(contract.PACED) == 1
    assert story.value(f'{contract.CACHE_CONFIG_INFO}{{block_size="16",num_blocks="10"}}') == 1
