"""The worked example of the law's README, recomputed: each number of its blocks follows from the code."""

import re
from array import array
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import log, sqrt
from pathlib import Path
from statistics import linear_regression, mean

from sluice_operator import autoscaler
from sluice_operator.autoscaler import decide
from sluice_operator.autoscaler.budget.division import EXACT
from sluice_operator.autoscaler.replicas.history import Comparison, History, Slot, late_at
from sluice_operator.autoscaler.replicas.rules import by_throughput, enough, growth, in_memory, lasting, model_error
from sluice_operator.autoscaler.settings import LAW
from sluice_operator.autoscaler.signals.cold_start import ColdStartState
from sluice_operator.autoscaler.state import AutoscalerState
from sluice_operator.autoscaler.values import ColdStart, Decision, Observed, PodView
from sluice_operator.reconcile.limits import SPARE_INTERVALS, TTL_INTERVALS
from sluice_perfmodel.settings import PERFMODEL
from sluice_perfmodel.shadow_queues import LOADS, EngineLimits, ShadowQueues, shadow_engine
from sluice_perfmodel.step_time import StepTimeModel
from tests.operator.autoscaler.fleet import MEMORY, Engine, spec

README = (Path(autoscaler.__file__).parent / "README.md").read_text()
FIRST_PAGE = " ".join((Path(__file__).parents[3] / "README.md").read_text().split())
WORDS = {3.0: "three", 8.0: "eight"}
QUEUE, GIVEN, WORKING = re.findall(r"^```text\n(.*?)^```", README, flags=re.MULTILINE | re.DOTALL)
NOW = 10_000.0
HALF = LAW.rise_seconds / 2.0


@dataclass(frozen=True)
class Example:
    """The numbers that the example is given."""

    attainment: float
    kv_target: float
    ready: int
    cold_start: float
    slots: tuple[Slot, ...]
    hour: Comparison
    counts: tuple[int, ...]  # arrivals per bin, oldest first
    occupancy: tuple[float, ...]
    throughput: float

    @property
    def missed_share(self) -> float:
        return 1.0 - self.attainment

    @property
    def arrivals(self) -> tuple[tuple[float, float], ...]:
        """(end of the bin, requests per second), the last one now."""
        last = len(self.counts) - 1
        bins = enumerate(self.counts)
        return tuple((NOW - LAW.bin_seconds * (last - place), count / LAW.bin_seconds) for place, count in bins)


def numbers(text: str) -> list[float]:
    return [float(found) for found in re.findall(r"(?<![\w.])\d+(?:\.\d+)?", text)]


def line(block: str, label: str) -> str:
    """The line of the block that begins with this label, without it."""
    (found,) = re.findall(rf"^{label}(.*)$", block, flags=re.MULTILINE)
    return str(found)


def given() -> Example:
    attainment, kv_target, ready, cold_start = numbers(line(GIVEN, "target:"))
    requests, unreachable, missed, late, at, more_late, more_at = _hour()
    assert (at, more_at) == (1.0, 1.25)
    lateness = array("d", [late if load <= at else more_late for load in LOADS])
    labels = ("earlier", "minute, 1st half", "minute, 2nd half")
    ends = (NOW - 600.0, NOW - HALF, NOW)
    return Example(
        attainment=attainment,
        kv_target=kv_target,
        ready=int(ready),
        cold_start=cold_start,
        slots=tuple(_slot(line(GIVEN, label), end, int(ready)) for label, end in zip(labels, ends, strict=True)),
        hour=Comparison(NOW - 3_000.0, NOW, requests, unreachable, lateness, missed),
        counts=tuple(int(count) for count in numbers(line(GIVEN, "arrivals per 30 s:"))),
        occupancy=tuple(numbers(line(GIVEN, "KV occupancy:"))),
        throughput=numbers(line(GIVEN, "throughput of a replica:"))[0],
    )


def _hour() -> tuple[float, ...]:
    requests, unreachable, missed, late, at, more_late, more_at = numbers(line(GIVEN, "last hour:"))
    return requests, unreachable, missed, late, at, more_late, more_at


def _slot(row: str, end: float, ready: int) -> Slot:
    requests, unreachable, *late = numbers(row)
    return Slot(end - LAW.slot_seconds, end, ready, requests, unreachable, array("d", late))


def test_the_table_is_for_the_loads_of_the_engines() -> None:
    names = line(GIVEN, r"slot +N +U \|").split()
    assert [float(top) / float(bottom or 1) for top, _, bottom in (one.partition("/") for one in names)] == list(LOADS)


def test_the_shadow_queue_of_the_example() -> None:
    base, sequence, itl, ttft = numbers(line(QUEUE, "engine:"))
    many, each, one, last = numbers(line(QUEUE, "requests:"))
    model = StepTimeModel(base=base, prefill_token=3e-4, sequence=sequence)
    engine = shadow_engine(model, 100.0, 100.0, EngineLimits(itl, ttft, 2048, 1e6, 256.0, 0.25 * ttft))
    queues = ShadowQueues()
    for _ in range(int(many)):
        queues.arrive(0.0, each, engine)
    assert not any(late for load, late in zip(LOADS, queues.late, strict=True) if load <= 1.0)
    assert one == 1.0
    queues.arrive(0.0, last, engine)
    shown = [_queue_line(load, name, many, each, last, queues) for load, name in ((1.0, "1"), (0.5, "1/2"))]
    assert shown == QUEUE.splitlines()[2:]


def _queue_line(load: float, name: str, many: float, each: float, last: float, queues: ShadowQueues) -> str:
    """The equations of the README for the last request; whether it is late is the real queue's answer."""
    base, sequence, itl, _ = numbers(line(QUEUE, "engine:"))
    running, work = load * many, load * many * each
    beside = base + sequence * running
    prefill, wait = itl - beside, work + last
    first = itl + wait * itl / prefill
    verdict = "late" if queues.late[LOADS.index(load)] else "in time"
    return (
        f"x = {name}: n = {running:.0f}, v = {work:.2f}, D = {beside:.3f}, P = {prefill:.3f}, S = {itl:.3f}, "
        f"first token after {itl:.3f} + {wait:.2f} / {prefill / itl:.3f} = {first:.2f} s: {verdict}"
    )


def test_the_working_follows_from_the_rules() -> None:
    one = given()
    error = model_error([one.hour], 1.0 - one.attainment)
    factor = error * growth(one.arrivals, one.cold_start)
    memory, first, second = _memory(one, error), _half(one, 1, factor), _half(one, 2, factor)
    expected = [_error(one), _growth(one), *memory, *first, *second, _throughput(one, factor), _kv(one), _need(one)]
    assert expected == WORKING.splitlines()


def _error(one: Example) -> str:
    _, unreachable, missed, late, at, more_late, more_at = _hour()
    came = missed - unreachable
    certain = came - LAW.significance * sqrt(came)
    return (
        f"model error  missed: {missed:.0f} − {unreachable:.0f} = {came:.0f}, beyond chance {came:.0f} − "
        f"{LAW.significance:.0f}·√{came:.0f} = {certain:.0f}; e = {at:.0f} + {more_at - at:.2f}·({certain:.0f} − {late:.0f})/"
        f"({more_late:.0f} − {late:.0f}) = {model_error([one.hour], 1.0 - one.attainment):.2f}"
    )


def _growth(one: Example) -> str:
    """Counted in bins; the growth itself is the rule's."""
    bins = range(len(one.counts))
    slope, begin = linear_regression(bins, one.counts)
    spread = sum((place - mean(bins)) ** 2 for place in bins)
    residual = sum((count - begin - slope * place) ** 2 for place, count in enumerate(one.counts)) / (len(bins) - 2)
    error = sqrt(max(residual, mean(one.counts)) / spread)
    verdict = "it counts" if slope > LAW.significance * error else "it is chance"
    ahead = one.cold_start / LAW.bin_seconds + bins[-1] - mean(bins)
    before, last = one.counts[-2:]
    return (
        f"growth       slope {slope:.0f} per {LAW.bin_seconds:.0f} s, standard error {error:.2f}: {verdict}; "
        f"g = ({mean(one.counts):.0f} + {ahead:.0f}·{slope:.0f}) / (({before} + {last})/2) = "
        f"{mean(one.counts) + ahead * slope:.0f} / {(before + last) / 2:.0f} = {growth(one.arrivals, one.cold_start):.2f}"
    )


def _memory(one: Example, error: float) -> list[str]:
    reachable = sum(slot.reachable for slot in one.slots)
    allowed = one.missed_share * reachable
    row = [sum(slot.lateness[place] for slot in one.slots) for place in range(len(LOADS))]
    count = enough(one.slots, error, one.missed_share, 8 * one.ready)
    return [
        f"memory       Σ L: {' '.join(f'{late:.0f}' for late in row)}, m = {one.missed_share:.1f}·{reachable:.0f} = {allowed:.1f}",
        *(_replay(one, one.slots, replicas, error, count) for replicas in (count - 1, count)),
    ]


def _half(one: Example, half: int, factor: float) -> list[str]:
    slots = one.slots[half : half + 1]
    expected = one.missed_share * slots[0].reachable
    chance = LAW.significance
    count = enough(slots, factor, one.missed_share, 2 * one.ready, chance)
    allowed = f"{expected:.1f} + {chance:.0f}·√{expected:.1f} = {expected + chance * sqrt(expected):.2f}"
    return [
        f"{('1st', '2nd')[half - 1]} half     allowed {allowed} at e·g = {factor:.3f}",
        *(_replay(one, slots, replicas, factor, count) for replicas in (count - 1, count)),
    ]


def _replay(one: Example, slots: Sequence[Slot], replicas: int, factor: float, count: int) -> str:
    """One line of a replay: the place between two loads is shown, the late requests are the history's."""
    load = one.ready * factor / replicas
    place = bisect_right(LOADS, load)
    low, high = (sum(slot.lateness[at] for slot in slots) for at in (place - 1, place))
    share = log(load / LOADS[place - 1]) / log(LOADS[place] / LOADS[place - 1])
    late = late_at(slots, replicas, factor)
    verdict = "enough" if replicas >= count else "too many"
    return (
        f"             {replicas} replica{'s' if replicas > 1 else ''}: x = {load:.3f}, "
        f"L = {low:.0f} + {share:.3f}·{high - low:.0f} = {late:.1f}: {verdict}"
    )


def _throughput(one: Example, factor: float) -> str:
    share, rate = _reachable(one), min(one.counts[-2:]) / LAW.bin_seconds
    reachable, requests = (sum(getattr(slot, name) for slot in one.slots) for name in ("reachable", "requests"))
    return (
        f"throughput   reachable {reachable:.0f} of {requests:.0f}, rate min({one.counts[-2]}, {one.counts[-1]}) / "
        f"{LAW.bin_seconds:.0f} = {rate:.3f}: {share:.4f}·{factor:.3f}·{rate:.3f} / {one.throughput:.2f} = "
        f"{share * factor * rate / one.throughput:.2f}: {_by_throughput(one, factor)} replicas"
    )


def _by_throughput(one: Example, factor: float) -> int:
    """decide() has no model of the example's engines, so the rule is asked itself."""
    return by_throughput(one.arrivals, _reachable(one) * factor, one.throughput, 2 * one.ready)


def _reachable(one: Example) -> float:
    return sum(slot.reachable for slot in one.slots) / sum(slot.requests for slot in one.slots)


def _kv(one: Example) -> str:
    held = sum(one.occupancy)
    count = in_memory(held, one.kv_target)
    return f"KV caches    {held:.2f} / {one.kv_target:.2f} = {held / one.kv_target:.2f}: {count} replicas"


def _need(one: Example) -> str:
    decision = decided(one)
    found = dict(decision.reasons[0].numbers)
    factor, share = found["modelError"] * found["growth"], one.missed_share
    halves = [enough([slot], factor, share, 2 * one.ready, LAW.significance) for slot in one.slots[1:]]
    assert found["lastingReplicas"] == lasting(one.slots, NOW, factor, share, 2 * one.ready) == min(halves)
    return (
        f"need         memory {found['rememberedReplicas']:.0f}, lasting min({halves[0]}, {halves[1]}) = "
        f"{found['lastingReplicas']:.0f}, throughput {_by_throughput(one, factor)}, KV caches {found['inMemoryReplicas']:.0f}: {decision.replicas} replicas "
        f"({decision.reasons[0].binding})"
    )


def decided(one: Example) -> Decision:
    """What decide() makes of it: the history as given, and samples that add nothing to it but the KV occupancy."""
    start = one.cold_start
    past = History(one.slots, (one.hour,), one.arrivals, (NOW, 0.0), ready=one.ready, seen_at=NOW)
    began = AutoscalerState().begun(NOW - 3_600.0)
    signals = replace(began.signals, cold_starts=ColdStartState((("a", ColdStart(0.0, 0.0, start, 0.0, start)),)))
    samples = [replace(Engine().sample(), kv_occupancy=used) for used in one.occupancy]
    pods = tuple(PodView(f"pod-{place}", "ready", 0.0, sample, NOW) for place, sample in enumerate(samples))
    wanted = spec(
        slo={"attainmentPercent": f"{100 * one.attainment:g}"},
        scaling={"maxReplicas": 20, "targetKVOccupancyPercent": round(100 * one.kv_target)},
    )
    state = replace(began, history=past, signals=signals)
    return decide(wanted, Observed(pods, one.ready), state, NOW)[0]


def test_the_interpolation_is_explained_by_a_line_of_the_example() -> None:
    load, share = re.findall(r"3 replicas: x = (1\.\d+), L = 6 \+ (0\.\d+)", WORKING)[0]
    assert share == f"{log(float(load)) / log(1.25):.3f}"
    assert f"log({load}/1) / log(1.25/1) = {share}" in README


def test_without_a_trend_the_count_stays() -> None:
    """`README.md` says so below the example."""
    one = given()
    assert decided(one).replicas == one.ready + 1
    level = replace(one, counts=(round(mean(one.counts)),) * len(one.counts))
    assert decided(level).replicas == one.ready


def test_the_constants_in_the_text_are_those_of_the_law() -> None:
    text = " ".join(README.split())
    for words in (
        f"slots of {LAW.slot_seconds:.0f} s, those older than a minute into slots of {LAW.rise_seconds:.0f} s",
        f"enough(slots of the last `burstMemorySeconds`, {MEMORY:.0f} by default, e, 0)",
        f"halves of the last {LAW.rise_seconds:.0f} s of enough(half, e·g, {LAW.significance:.0f}), at most {LAW.growth_most:.0f}·r",
        f"own integral over {LAW.window_seconds:.0f} s",
        f"arrivals per {LAW.bin_seconds:.0f} s of the last {LAW.trend_seconds:.0f} s (or one cold start)",
        f"the mean of the last two; 1 to {LAW.growth_most:.0f}",
        f"the load, 1 to {LAW.error_most:g}, at which the replay has as many late requests as missed in the last hour",
        f"the {LAW.settled_seconds:.0f} s after a change of the fleet",
        f"a scrape within {LAW.usual_scrape_seconds:.0f} s of a change of the fleet enters no slot, unless none did for {HALF:.0f} s",
        f"fewer than {PERFMODEL.limit.least_model_steps} steps",
        f"the {100 * LAW.cold_start_quantile:.0f} % quantile of the last {LAW.cold_starts_kept} measured ones",
        f"{LAW.usual_cold_start_seconds:.0f} s until one is measured",
        f"ITL target / {PERFMODEL.limit.margin}",
        f"valid for {WORDS[TTL_INTERVALS]} of its intervals and at least {LAW.ttl_seconds:.0f} s",
        f"Among more than {EXACT} deployments a division is kept for up to {LAW.budget_division_seconds:.0f} s",
        f"gets the whole after {LAW.slow_start_seconds:.0f} s (slow start)",
    ):
        assert words in text, words
    for words in (
        f"expires after {WORDS[TTL_INTERVALS]} of its intervals ({TTL_INTERVALS * LAW.usual_scrape_seconds:.0f} s)",
        f"and is sent again {WORDS[SPARE_INTERVALS]} before that",
    ):
        assert words in FIRST_PAGE, words
    assert (LAW.slow_start_share, LAW.stale_after_scrapes, LAW.error_seconds) == (0.5, 3.0, 3_600.0)
