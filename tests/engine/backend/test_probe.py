"""A compiled decoder that is wrong beyond the first block of a single prompt is rejected before it serves."""

import logging
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from transformers import LlamaConfig, MistralConfig, PreTrainedConfig, Qwen2Config

from sluice_engine.backend.cpu import acceptance, native
from sluice_engine.backend.cpu.decoder import NativeDecoder, Output
from sluice_engine.core.engine import EngineLoop
from sluice_engine.model.batch import Batch, RowGroup
from tests.engine.families import ALTERNATING, SMALL, save
from tests.engine.oracle import options

LLAMA = LlamaConfig(**SMALL)
SLIDING = MistralConfig(**SMALL, sliding_window=24)
WIDE = MistralConfig(**SMALL | {"max_position_embeddings": 8192}, sliding_window=4096)
MIXED = Qwen2Config(**SMALL | ALTERNATING, use_sliding_window=True)

Arguments = dict[str, Any]


def unchanged(decoder: NativeDecoder, given: Arguments) -> None:
    """Nothing is wrong."""


def second_block_is_the_first(decoder: NativeDecoder, given: Arguments) -> None:
    def wrong(group: RowGroup) -> RowGroup:
        tables = group.block_tables.clone()
        tables[:, 1:2] = tables[:, :1]
        return replace(group, block_tables=tables)

    given["sluice_batch"] = of_groups(given["sluice_batch"], wrong)


def later_rows_read_the_first_rows_blocks(decoder: NativeDecoder, given: Arguments) -> None:
    def wrong(group: RowGroup) -> RowGroup:
        return replace(group, block_tables=group.block_tables[:1].expand(group.rows, -1).contiguous())

    given["sluice_batch"] = of_groups(given["sluice_batch"], wrong)


def of_groups(batch: Batch, change: Callable[[RowGroup], RowGroup]) -> Batch:
    return replace(batch, groups=tuple(map(change, batch.groups)), native={})


def later_tokens_are_cached_elsewhere(decoder: NativeDecoder, given: Arguments) -> None:
    batch: Batch = given["sluice_batch"]
    late = batch.position_ids[0] == 20
    given["sluice_batch"] = replace(batch, slot_mapping=batch.slot_mapping + late.long(), native={})


def later_positions_are_rotated_alike(decoder: NativeDecoder, given: Arguments) -> None:
    given["position_ids"] = given["position_ids"].clamp(max=33)


def rows_are_swapped(decoder: NativeDecoder, given: Arguments) -> None:
    given["logits_to_keep"] = given["logits_to_keep"].flip(0)


def no_window(decoder: NativeDecoder, given: Arguments) -> None:
    for layer in decoder._layers:
        layer.window = 0


def one_group_of_layers(decoder: NativeDecoder, given: Arguments) -> None:
    decoder._attach(given["sluice_cache"])
    for layer in decoder._layers:
        layer.group = 0


def loaded(
    config: PreTrainedConfig,
    fault: Callable[[NativeDecoder, Arguments], None],
    folder: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> EngineLoop:
    class Faulty(NativeDecoder):
        def __call__(self, *_: Any, **given: Any) -> Output:
            fault(self, given)
            return super().__call__(**given)

    monkeypatch.setattr(acceptance, "NativeDecoder", Faulty)
    length = {"max_model_length": 128, "kv_size": 32 << 20}
    return EngineLoop(options(save(config, folder), **length))


@pytest.mark.parametrize(
    ("config", "fault"),
    [
        (LLAMA, second_block_is_the_first),
        (LLAMA, later_rows_read_the_first_rows_blocks),
        (LLAMA, later_tokens_are_cached_elsewhere),
        (LLAMA, later_positions_are_rotated_alike),
        (LLAMA, rows_are_swapped),
        (SLIDING, no_window),
        (WIDE, no_window),
        (MIXED, no_window),
        (MIXED, one_group_of_layers),
    ],
    ids=lambda each: getattr(each, "__name__", getattr(each, "model_type", None)),
)
def test_a_decoder_that_is_wrong_beyond_the_first_block_is_rejected(
    library: Path | None,
    config: PreTrainedConfig,
    fault: Callable[[NativeDecoder, Arguments], None],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    if library is None:
        pytest.skip("there is no C compiler")
    monkeypatch.setattr(native, "LIBRARY", library)
    engine = loaded(config, fault, tmp_path, monkeypatch)
    assert "gives other logits than this model" in caplog.text
    assert not isinstance(engine.model.module.forward, NativeDecoder)


@pytest.mark.parametrize(("config", "window"), [(SLIDING, 24), (WIDE, 4096), (MIXED, 20)], ids=["24", "4096", "mixed"])
@pytest.mark.parametrize("by", [-1, 1])
def test_a_window_that_is_off_by_one_position_is_rejected(
    library: Path | None,
    config: PreTrainedConfig,
    window: int,
    by: int,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    if library is None:
        pytest.skip("there is no C compiler")

    def wrong(decoder: NativeDecoder, given: Arguments) -> None:
        for layer in decoder._layers:
            layer.window = window + by if layer.window else 0

    monkeypatch.setattr(native, "LIBRARY", library)
    loaded(config, wrong, tmp_path, monkeypatch)
    assert "gives other logits than this model" in caplog.text


@pytest.mark.parametrize("config", [LLAMA, SLIDING, WIDE, MIXED], ids=["plain", "window 24", "window 4096", "mixed"])
def test_a_decoder_that_is_right_is_accepted_after_few_tokens(
    library: Path | None,
    config: PreTrainedConfig,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    if library is None:
        pytest.skip("there is no C compiler")
    monkeypatch.setattr(native, "LIBRARY", library)
    with caplog.at_level(logging.INFO):
        engine = loaded(config, unchanged, tmp_path, monkeypatch)
    assert isinstance(engine.model.module.forward, NativeDecoder)
    said = next(record for record in caplog.records if "run by the compiled decoder" in record.message)
    assert isinstance(said.args, tuple)
    assert 60 < said.args[0] < 100  # type: ignore[operator]  # tokens; all take 0.1 to 0.2 s on a busy core
