"""What the watches have delivered, in memory: reconcile reads from here, and the API server is asked for writes only.

`store` holds the objects, `slim` says which fields of each kind, `feed` takes the events of the watches, `resync` lists
everything again, because a watch may lose an event, and `polling` lists kinds that are not watched.
"""

from sluice_operator.cluster.cache.feed import Feed
from sluice_operator.cluster.cache.polling import Polling
from sluice_operator.cluster.cache.resync import Resync
from sluice_operator.cluster.cache.store import ObjectCache

__all__ = ["Feed", "ObjectCache", "Polling", "Resync"]
