"""Each fault of a download has its own reason, by the real client library."""

from pathlib import Path

import pytest

from sluice.model_uri import HubModel
from sluice_engine.sources import Patience, SourceError, cached_models, fetch
from sluice_engine.sources.cache import entry_of
from tests.engine.sources.conftest import FILES
from tests.hub_server import COMMIT, Hub

ONCE = Patience(stall_seconds=1.0, lease_seconds=5.0, attempts=1)


def refusal(cache: Path, uri: str = "hf://org/model") -> SourceError:
    with pytest.raises(SourceError) as caught:
        fetch(uri, cache, patience=ONCE)
    assert cached_models(cache) == ()
    return caught.value


@pytest.mark.parametrize(
    ("status", "headers", "reason"),
    [
        (401, {}, "ModelAccessDenied"),
        (403, {"X-Error-Code": "GatedRepo"}, "ModelAccessDenied"),
        (404, {"X-Error-Code": "RepoNotFound"}, "ModelNotFound"),
        (429, {"Retry-After": "7"}, "RateLimited"),
        (503, {}, "DownloadFailed"),
    ],
)
def test_a_status_of_the_hub_has_its_reason(
    hub: Hub, tmp_path: Path, status: int, headers: dict[str, str], reason: str
) -> None:
    hub.refusal = (status, headers)
    error = refusal(tmp_path)
    assert error.reason == reason
    assert (error.transient, error.retry_after) == (status in (429, 503), 7.0 if status == 429 else None)


def test_a_stalled_transfer_ends(hub: Hub, tmp_path: Path) -> None:
    hub.stop_at = 1 << 19
    assert refusal(tmp_path).reason == "DownloadStalled"


def test_a_transfer_that_drips_slower_than_a_chunk_per_stall_is_ended(hub: Hub, tmp_path: Path) -> None:
    hub.drip_after = 1 << 19
    error = refusal(tmp_path)
    hub.drip_after = None
    assert (error.reason, error.transient) == ("DownloadStalled", True)
    folder = fetch("hf://org/model", tmp_path, patience=ONCE).folder
    assert (folder / "model.safetensors").read_bytes() == FILES["model.safetensors"]


def test_a_response_that_ends_early_is_continued_where_it_ended(hub: Hub, tmp_path: Path) -> None:
    hub.truncate_at = len(FILES["model.safetensors"]) // 3
    folder = fetch("hf://org/model", tmp_path, patience=Patience(stall_seconds=20.0, attempts=6)).folder
    assert (folder / "model.safetensors").read_bytes() == FILES["model.safetensors"]
    assert hub.served <= 1.5 * len(FILES["model.safetensors"])


def test_a_disk_that_fills_up_meanwhile_is_named_and_the_download_continues_when_there_is_room(
    hub: Hub, tmp_path: Path
) -> None:
    part = entry_of(tmp_path, HubModel("org/model"), COMMIT).partial / "model.safetensors.part"
    part.parent.mkdir(parents=True)
    part.symlink_to("/dev/full")
    error = refusal(tmp_path)
    assert error.reason == "DiskFull" and "became full" in error.message
    part.unlink()
    folder = fetch("hf://org/model", tmp_path, patience=ONCE).folder
    assert (folder / "model.safetensors").read_bytes() == FILES["model.safetensors"]


def test_too_large_a_model_is_refused_before_its_weights(hub: Hub, tmp_path: Path) -> None:
    hub.claimed_size = 10**18
    error = refusal(tmp_path)
    assert error.reason == "DiskFull" and "1000000.0 TB" in error.message and hub.served == 0


def test_wrong_content_is_discarded(hub: Hub, tmp_path: Path) -> None:
    hub.corrupt = True
    assert refusal(tmp_path).reason == "DownloadCorrupt"
    hub.corrupt = False
    folder = fetch("hf://org/model", tmp_path, patience=ONCE).folder
    assert (folder / "model.safetensors").read_bytes() == FILES["model.safetensors"]


@pytest.mark.parametrize(
    ("name", "content", "words"),
    [
        ("config.json", b'{"quantization_config": {"quant_method": "awq"}}', "awq"),
        ("config.json", b'{"vision_config": {}}', "images"),
        ("config.json", b'{"model_type": "mamba", "architectures": ["MambaForCausalLM"]}', "MambaForCausalLM"),
        ("adapter_config.json", b"{}", "LoRA"),
    ],
)
def test_a_checkpoint_that_is_not_served_is_named_before_its_weights(
    hub: Hub, tmp_path: Path, name: str, content: bytes, words: str
) -> None:
    if name == "adapter_config.json":
        hub.files = {"adapter_model.safetensors": b"x"}
    hub.files[name] = content
    error = refusal(tmp_path)
    reason = "ModelInvalid" if name == "adapter_config.json" else "UnsupportedArchitecture"
    assert error.reason == reason and words in error.message and hub.served == 0
