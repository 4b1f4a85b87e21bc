"""Where models come from: a hub or a bucket, and the cache that processes and pods share. Imports no torch."""

from sluice_engine.sources.cache import CachedModel, cached_models, default_cache, remove
from sluice_engine.sources.errors import SourceError
from sluice_engine.sources.fetching import Fetched, FetchStopped, Patience, fetch, retry_seconds
from sluice_engine.sources.memory import memory_plan
from sluice_engine.sources.messages import MemoryPlan
from sluice_engine.sources.progress import Progress, progress_text, size_text

__all__ = [
    "CachedModel",
    "FetchStopped",
    "Fetched",
    "MemoryPlan",
    "Patience",
    "Progress",
    "SourceError",
    "cached_models",
    "default_cache",
    "fetch",
    "memory_plan",
    "progress_text",
    "remove",
    "retry_seconds",
    "size_text",
]
