"""Finds pulled models by what a user types: a known name, the URI that was pulled, or the folder."""

from pathlib import Path

from sluice_engine.errors import ModelNotFound
from sluice_engine.pulled.catalogue import known_models
from sluice_engine.sources import CachedModel, cached_models


def find_pulled(name: str, cache: Path) -> tuple[CachedModel, ...]:
    """The pulled models that `name` names: every revision of a URI, or the one after `@`. Raises ModelNotFound if none."""
    found = tuple(model for model in cached_models(cache) if name in _names(model))
    if not found:
        raise ModelNotFound(f"No model {name!r} is pulled. {what_exists(cache)}")
    return found


def what_exists(cache: Path) -> str:
    """Sentences for a name that is unknown: which models are pulled, and how to pull others."""
    pulled = [model.uri for model in cached_models(cache)]
    others = [name for name in known_models() if name not in pulled]
    told = f"Pulled: {', '.join(pulled)}." if pulled else "No model is pulled yet."
    offered = (
        f" `sluice model pull NAME` knows {', '.join(others)}, and takes" if others else " `sluice model pull` takes"
    )
    return f"{told}{offered} hf://org/name and the path of a GGUF file."


def _names(model: CachedModel) -> set[str]:
    path = Path(model.uri)
    files = {path.name, path.stem} if path.suffix == ".gguf" else set()
    return {model.uri, f"{model.uri}@{model.revision}", str(model.folder), *files}
