"""Each fault of a download has its own reason, by the real client library."""

from pathlib import Path

import pytest

from sluice.models.uri import HubModel
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


def is_served(cache: Path) -> bool:
    """Whether the next attempt brings the whole model."""
    folder = fetch("hf://org/model", cache, patience=ONCE).folder
    return (folder / "model.safetensors").read_bytes() == FILES["model.safetensors"]


@pytest.mark.parametrize(
    ("status", "headers", "reason", "hint"),
    [
        (401, {}, "ModelAccessDenied", "give a token with read access to it: set HF_TOKEN or"),
        (403, {"X-Error-Code": "GatedRepo"}, "ModelAccessDenied", "Accept its terms at"),
        (404, {"X-Error-Code": "RepoNotFound"}, "ModelNotFound", "Check the name."),
        (404, {"X-Error-Code": "RevisionNotFound"}, "RevisionNotFound", "Name one of its branches, tags or commits"),
        (429, {"Retry-After": "7"}, "RateLimited", "a token raises the limit"),
        (503, {}, "DownloadFailed", "is tried again"),
    ],
)
def test_a_status_of_the_hub_has_its_reason_and_hint_and_heals(
    hub: Hub, tmp_path: Path, status: int, headers: dict[str, str], reason: str, hint: str
) -> None:
    hub.refusal = (status, headers)
    error = refusal(tmp_path)
    assert error.reason == reason and hint in error.message
    assert (error.transient, error.retry_after) == (status in (429, 503), 7.0 if status == 429 else None)
    hub.refusal = None
    assert is_served(tmp_path)


def test_a_private_model_asks_for_a_token_and_a_right_one_heals(
    hub: Hub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    hub.token = "hf_right"
    assert "Access without a token is refused" in refusal(tmp_path).message
    for token, words in (("hf_wrong", "The token does not give access"), ("hf_tök", "characters that no token has")):
        monkeypatch.setenv("HF_TOKEN", token)
        error = refusal(tmp_path)
        assert (error.reason, error.transient) == ("ModelAccessDenied", False) and words in error.message
        assert token not in error.message
    monkeypatch.setenv("HF_TOKEN", "hf_right")
    assert is_served(tmp_path)


def test_an_endpoint_that_is_no_url_is_named(hub: Hub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_ENDPOINT", "hub.example")
    error = refusal(tmp_path)
    assert (error.reason, error.transient) == ("InvalidOption", False) and "HF_ENDPOINT must be a URL" in error.message


def test_a_cache_that_is_no_folder_is_named(hub: Hub, tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_text("not a folder")
    assert "A file is in the place of a folder" in refusal(file).message


def test_a_fault_of_the_program_is_logged_and_continued(
    hub: Hub, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    hub.tree = lambda: [{"type": "file", "path": None, "size": "many"}]  # type: ignore[method-assign]
    error = refusal(tmp_path)
    assert error.reason == "DownloadFailed" and "ended with status 1; see the log" in error.message
    assert "Traceback" in capfd.readouterr().err


def test_a_stalled_transfer_ends(hub: Hub, tmp_path: Path) -> None:
    hub.stop_at = 1 << 19
    assert refusal(tmp_path).reason == "DownloadStalled"
    hub.released.set()
    assert is_served(tmp_path)


def test_a_transfer_that_drips_slower_than_a_chunk_per_stall_is_ended(hub: Hub, tmp_path: Path) -> None:
    hub.drip_after = 1 << 19
    error = refusal(tmp_path)
    hub.drip_after = None
    assert (error.reason, error.transient) == ("DownloadStalled", True)
    assert is_served(tmp_path)


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
    assert is_served(tmp_path)


def test_too_large_a_model_is_refused_before_its_weights(hub: Hub, tmp_path: Path) -> None:
    hub.claimed_size = 10**18
    error = refusal(tmp_path)
    assert error.reason == "DiskFull" and "1000000.0 TB" in error.message and hub.served == 0
    hub.claimed_size = None
    assert is_served(tmp_path)


def test_wrong_content_is_discarded(hub: Hub, tmp_path: Path) -> None:
    hub.corrupt = True
    assert refusal(tmp_path).reason == "DownloadCorrupt"
    hub.corrupt = False
    assert is_served(tmp_path)


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
