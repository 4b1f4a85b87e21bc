"""The trace formats besides Azure's: parsing, random draws by seed, and errors of bad lines."""

import gzip
import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sluice_engine.kvcache.block_pool import extend_hashes
from sluice_sim.data import bundled
from sluice_sim.traces import Arrival, BadTrace, Part, prompt_identities, prompt_tokens, read_trace, scaled

MOONCAKE: list[dict[str, object]] = [
    {"timestamp": 0, "input_length": 600, "output_length": 5, "hash_ids": [0, 1]},
    {"timestamp": 0, "input_length": 520, "output_length": 6, "hash_ids": [0, 2]},
    {"timestamp": 3000, "input_length": 10, "output_length": 7, "hash_ids": [3]},
]
RECORDED: list[dict[str, object]] = [
    {"arrival": 0.5, "input_tokens": 30, "output_tokens": 4, "ttft": 0.1, "failure": None},
    {"arrival": 0.2, "input_tokens": 20, "output_tokens": 3, "ttft": 0.1, "failure": None},
    {"arrival": 0.7, "input_tokens": 0, "output_tokens": 0, "ttft": None, "failure": "refused"},
]
RATES = (
    "client,t_s,rate_rps,cv,arrival,arg1,arg2\n7,0,2.0,1,Gamma,0.5,1\n7,600,1.0,1,Weibull,0.8,1\n8,0,9,1,Gamma,1,1\n"
)
LENGTHS: list[dict[str, object]] = [
    {"client": 7, "t_s": 0, "input_tokens": {"100": 0.5, "200": 0.5}, "output_tokens": {"10": 1.0}},
    {"client": 7, "t_s": 600, "input_tokens": {"300": 1.0}, "output_tokens": {"20": 1.0}},
]


def lines(folder: Path, rows: list[dict[str, object]], name: str = "t.jsonl") -> Path:
    path = folder / name
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return path


def text(folder: Path, content: str, name: str = "t.csv") -> Path:
    path = folder / name
    path.write_text(content, encoding="utf-8")
    return path


def test_mooncakes_batches_are_spread_over_three_seconds_by_seed(tmp_path: Path) -> None:
    path = lines(tmp_path, MOONCAKE)
    found = read_trace(path)
    assert found == read_trace(path)
    assert [one.at for one in found] != [one.at for one in read_trace(path, Part(seed=1))]
    assert all(0 <= one.at < 3 for one in found[:2]) and 3 <= found[2].at < 6
    assert [one.at for one in found] == sorted(one.at for one in found)
    assert {one.blocks for one in found} == {(0, 1), (0, 2), (3,)}


def test_prompts_share_tokens_exactly_where_the_trace_says_so() -> None:
    one, other = Arrival(0, 600, 1, (0, 1)), Arrival(0, 1100, 1, (0, 2))
    first, second = prompt_tokens(one, 1), prompt_tokens(other, 2)
    assert len(first) == 600 and len(second) == 1100
    assert first[:512] == second[:512]
    assert not set(first[512:]) & set(second[512:])
    assert prompt_tokens(Arrival(0, 3, 1), 5) != prompt_tokens(Arrival(0, 3, 1), 6)


ARRIVALS = st.builds(
    Arrival,
    at=st.just(0.0),
    prompt=st.integers(1, 1_700),
    output=st.just(1),
    blocks=st.lists(st.integers(0, 1), max_size=3).map(tuple),
    tenant=st.sampled_from(["", "a"]),
)


@given(ARRIVALS, ARRIVALS, st.sampled_from([16, 64, 512]))
def test_block_identities_are_equal_exactly_where_the_chained_hashes_are(
    one: Arrival, other: Arrival, size: int
) -> None:
    named, hashed = list[bytes](), list[bytes]()
    for number, arrival in enumerate((one, other)):
        named += prompt_identities(arrival, number, size)
        hashes: list[bytes] = []
        extend_hashes(hashes, prompt_tokens(arrival, number), size, arrival.tenant)
        hashed += hashes
    assert [named.index(each) for each in named] == [hashed.index(each) for each in hashed]


def test_a_block_size_that_does_not_divide_the_traces_blocks_is_hashed() -> None:
    assert prompt_identities(Arrival(0, 600, 1, (0, 1)), 1, 48) == []


def test_a_bench_record_is_replayed_in_order_including_rejected_requests(tmp_path: Path) -> None:
    found = read_trace(lines(tmp_path, RECORDED))
    assert found == (Arrival(0.2, 20, 3), Arrival(0.5, 30, 4), Arrival(0.7, 20, 3))


def test_servegen_draws_each_clients_windows_and_lengths_by_seed(tmp_path: Path) -> None:
    path, lengths = text(tmp_path, RATES), lines(tmp_path, LENGTHS)
    found = read_trace(path, Part(lengths=lengths))
    assert found == read_trace(path, Part(lengths=lengths))
    early, late = [one for one in found if one.at < 600], [one for one in found if one.at >= 600]
    assert (len(early), len(late)) == (1200, 600)  # client 8 has no lengths
    assert {one.prompt for one in early} == {100, 200} and {one.prompt for one in late} == {300}
    assert {one.output for one in late} == {20}
    assert 400 < sum(one.prompt == 100 for one in early) < 800


def test_servegen_thinned_keeps_the_mean_and_a_part_is_the_same_part(tmp_path: Path) -> None:
    path, lengths = text(tmp_path, RATES), lines(tmp_path, LENGTHS)
    thinned = read_trace(path, Part(lengths=lengths, rate=0.75))
    assert len(thinned) == pytest.approx(900, abs=90)
    tail = read_trace(path, Part(lengths=lengths, start=600, seconds=600))
    whole = read_trace(path, Part(lengths=lengths))
    assert [one.prompt for one in tail] == [one.prompt for one in whole if one.at >= 600]
    with pytest.raises(BadTrace, match=r"have 1.5 requests/s in this span, fewer than 9"):
        read_trace(path, Part(lengths=lengths, rate=9.0))


def test_lengths_alone_need_a_rate(tmp_path: Path) -> None:
    path = text(tmp_path, "num_prefill_tokens,num_decode_tokens,num_total_tokens,pd_ratio\n30,4,34,7.5\n")
    found = read_trace(path, Part(rate=5.0, seconds=60.0))
    assert 200 < len(found) < 400
    assert {(one.prompt, one.output) for one in found} == {(30, 4)}
    with pytest.raises(BadTrace, match="give --rate and --seconds"):
        read_trace(path)


@pytest.mark.parametrize(
    ("row", "sentence"),
    [
        ({"timestamp": -1}, "line 4, field timestamp: expected milliseconds ≥ 0, found '-1'"),
        ({"timestamp": 0}, "line 4, field timestamp: expected times in order"),
        ({"input_length": "many"}, "line 4, field input_length: expected a whole number of tokens ≥ 1"),
        ({"output_length": 0}, "line 4, field output_length: expected a whole number of tokens ≥ 1, found '0'"),
        ({"output_length": 1.5}, "line 4, field output_length"),
        ({"hash_ids": ["a"]}, "line 4, field hash_ids: expected a list of whole numbers ≥ 0"),
        ({"hash_ids": [1, 2, 3]}, "line 4, field hash_ids: expected at most one per 512 of 10 tokens, found 3"),
    ],
)
def test_a_bad_mooncake_line_is_named_with_its_field(tmp_path: Path, row: dict[str, object], sentence: str) -> None:
    usual = {"timestamp": 6000, "input_length": 10, "output_length": 1, "hash_ids": [1]}
    with pytest.raises(BadTrace) as caught:
        read_trace(lines(tmp_path, [*MOONCAKE, usual | row]))
    assert sentence in str(caught.value)


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        ("{nonsense\n", "line 1: expected a JSON object, found '{nonsense'"),
        ('{"a": 1}\n', "line 1: expected the fields of Mooncake"),
        ('{"arrival": 1, "input_tokens": 0, "output_tokens": 0}\n', "expected at least one request that was answered"),
        ('{"arrival": "x", "input_tokens": 1, "output_tokens": 1}\n', "line 1, field arrival: expected seconds ≥ 0"),
        (RATES + "7,x,1,1,Gamma,1,1\n", "line 5, column t_s: expected seconds ≥ 0, found 'x'"),
        (RATES + "7,0,1,1,Pareto,1,1\n", "line 5, column arrival: expected Gamma or Weibull, found 'Pareto'"),
        (RATES + "7,0,1,1,Gamma,0,1\n", "line 5, column arg1: expected a shape > 0"),
        ("num_prefill_tokens,other\n1,2\n", "line 1: column num_decode_tokens is missing"),
    ],
)
def test_other_bad_lines_are_named(tmp_path: Path, content: str, sentence: str) -> None:
    lengths = lines(tmp_path, LENGTHS, "lengths.jsonl") if content.startswith("client,") else None
    with pytest.raises(BadTrace) as caught:
        read_trace(text(tmp_path, content), Part(lengths=lengths))
    assert sentence in str(caught.value)


def test_bad_lengths_are_named(tmp_path: Path) -> None:
    path = text(tmp_path, RATES)
    for change, sentence in (
        ({"input_tokens": {}}, "line 1, field input_tokens: expected an object of {tokens: probability}"),
        ({"input_tokens": {"x": 1}}, "found 'x' tokens"),
        ({"output_tokens": {"5": -1}}, "line 1, field 5: expected a probability in output_tokens ≥ 0"),
        ({"output_tokens": {"5": 0}}, "expected a probability above 0"),
    ):
        lengths = lines(tmp_path, [LENGTHS[0] | change])
        with pytest.raises(BadTrace) as caught:
            read_trace(path, Part(lengths=lengths))
        assert sentence in str(caught.value)
    with pytest.raises(BadTrace, match="give --lengths with it"):
        read_trace(path)


def test_a_rate_is_rejected_for_a_trace_with_times(tmp_path: Path) -> None:
    with pytest.raises(BadTrace, match="a rate was given, but this trace has arrival times"):
        read_trace(lines(tmp_path, MOONCAKE), Part(rate=1.0))


def test_scaling_superposes_moved_copies_and_thins_the_rest() -> None:
    base = tuple(Arrival(float(i), 10, 5, (i,)) for i in range(1000))
    tripled = scaled(base, 3.0, seed=1)
    assert len(tripled) == 3000 and tripled == scaled(base, 3.0, seed=1)
    assert [one.at for one in tripled] == sorted(one.at for one in tripled)
    assert set(base) <= set(tripled)
    assert len({one.blocks for one in tripled}) == 3000  # copies share nothing with one another
    assert len(scaled(base, 2.5, seed=1)) == pytest.approx(2500, abs=60)
    half = scaled(base, 0.5, seed=1)
    assert len(half) == pytest.approx(500, abs=60) and set(half) <= set(base)
    with pytest.raises(ValueError, match="above 0"):
        scaled(base, 0.0, seed=1)


def test_the_bundled_traces_read_whole() -> None:
    """Counts and means as their sources publish them."""
    azure, mooncake = bundled("azure2023_conv"), bundled("mooncake_conversation.jsonl.gz")
    rates, lengths = bundled("servegen_m-large_rates_2d"), bundled("servegen_m-large_lengths_2d")
    assert azure and mooncake and rates and lengths
    found = read_trace(azure)
    assert len(found) == 19_366 and found[-1].at == pytest.approx(3501.7, abs=0.1)
    with gzip.open(mooncake, "rt", encoding="utf-8") as file:
        assert sum(1 for _ in file) == 12_031
    hour = read_trace(rates, Part(start=7200, seconds=600, rate=20.0, lengths=lengths))
    assert len(hour) == pytest.approx(12_000, rel=0.05)
    assert bundled("unheard-of") is None and bundled("../README.md") is None
