"""The options of `sluice serve` as text from the command line or the environment."""

import contextlib
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sluice import contract
from sluice_engine.backend import resources
from sluice_engine.server.options import OptionInvalid, parse, parse_size
from sluice_perfmodel.step_time import StepTimeModel


def test_the_default_host_is_loopback() -> None:
    options, settings = parse({"model": "/models/chat"})
    assert options.served_name == "chat"
    assert (settings.host, settings.port, settings.admin_port) == ("127.0.0.1", contract.DATA_PORT, contract.ADMIN_PORT)
    assert (options.limits.itl_target, options.limits.ttft_target, options.grace_seconds) == (
        0.05,
        2.0,
        contract.DRAIN_GRACE_SECONDS,
    )


@pytest.mark.parametrize(
    ("device", "driver", "tokens"),
    [("cpu", True, 1024), ("cuda", False, 2048), ("auto", False, 1024), ("auto", True, 2048)],
)
def test_steps_are_shorter_on_a_cpu_unless_their_size_is_given(
    device: str, driver: bool, tokens: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(resources, "GPU_DEVICES", (tmp_path,) if driver else ())
    assert parse({"model": "m", "device": device})[0].limits.max_batched_tokens == tokens
    given = parse({"model": "m", "device": device, "max-batched-tokens": "700"})[0]
    assert given.limits.max_batched_tokens == 700


def test_every_option_reaches_the_engine() -> None:
    options, settings = parse(
        {
            "model": "m", "served-name": "a/b", "host": "::1", "port": "9", "admin-port": "10", "dtype": "float32",
            "device": "cpu", "max-model-length": "512", "kv-size": "64Mi", "kv-memory-fraction": "0.5",
            "block-size": "8", "max-num-seqs": "32", "max-batched-tokens": "128", "concurrency-min": "2",
            "concurrency-max": "64", "max-queue": "0", "kv-watermark": "0.9", "itl-ms": "80", "ttft-ms": "1500",
            "policy": "edf", "speculation": "on", "swap-size": "0", "threads": "1", "pace": "base=0.03, sequence=0.004,prefill_token=0.0002,prefill_context=0,kv_token=2e-6",
            "quantization": "int8", "drain-seconds": "0", "grace-seconds": "0", "targets-file": "/etc/t/x.json",
        }
    )  # fmt: skip
    assert (options.served_name, options.kv_size, options.limits.concurrency_max, options.limits.max_queue) == (
        "a/b",
        2**26,
        32,
        0,
    )
    assert (options.limits.itl_target, options.limits.ttft_target, options.max_model_length) == (0.08, 1.5, 512)
    assert (options.policy, options.quantization) == ("edf", "int8")
    assert (options.speculation, options.swap_size) == ("on", 0)
    assert options.pace == StepTimeModel(base=0.03, prefill_token=0.0002, sequence=0.004, kv_token=2e-6)
    assert (settings.host, settings.port, settings.admin_port) == ("::1", 9, 10)
    assert settings.targets_file == Path("/etc/t/x.json")


@pytest.mark.parametrize(
    ("option", "value"),
    [
        ("port", "x"), ("port", "-1"), ("port", "65536"), ("port", "1.5"), ("admin-port", "8000"), ("dtype", "int3"),
        ("quantization", "int3"),
        ("device", "tpu"), ("kv-size", "64Q"), ("kv-size", "-1"), ("kv-size", "0"), ("kv-size", "much"), ("swap-size", "-1"),
        ("kv-memory-fraction", "0"), ("kv-memory-fraction", "1.1"), ("block-size", "0"), ("max-num-seqs", "0"),
        ("max-batched-tokens", "²"), ("concurrency-min", "999"), ("concurrency-max", "0"), ("max-queue", "-1"),
        ("kv-watermark", "nan"), ("itl-ms", "0"), ("itl-ms", "inf"), ("ttft-ms", "-5"), ("threads", "0"),
        ("policy", "lifo"),
        ("speculation", "maybe"),
        ("max-model-length", "0"), ("pace", "fast"), ("pace", "base=-1"), ("pace", "sequence=1"), ("pace", "base=nan"),
        ("drain-seconds", "-1"), ("grace-seconds", "x"), ("admin-token-file", "/no/such/file"),
    ],
)  # fmt: skip
def test_an_invalid_value_is_one_sentence_that_names_its_option(option: str, value: str) -> None:
    with pytest.raises(OptionInvalid) as caught:
        parse({"model": "m", option: value})
    assert str(caught.value).startswith(f"--{option}")
    assert str(caught.value).endswith(".")
    assert "\n" not in str(caught.value)


def test_model_is_required() -> None:
    with pytest.raises(OptionInvalid, match="MODEL is required"):
        parse({"model": ""})


@pytest.mark.parametrize(("text", "size"), [("1", 1), ("2k", 2000), ("2Ki", 2048), ("1Gi", 2**30), ("3M", 3 * 10**6)])
def test_sizes_are_kubernetes_quantities(text: str, size: int) -> None:
    assert parse_size(text) == size


@given(st.text(max_size=12))
def test_any_text_is_a_size_or_a_value_error(text: str) -> None:
    with contextlib.suppress(ValueError):
        assert parse_size(text) >= 0
