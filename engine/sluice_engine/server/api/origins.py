"""Where the fields of a chat come from that was translated from another API's body: errors name what the client sent."""

import re
from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from sluice_engine.server.errors import BadRequest

_ENDS: Final = re.compile(r"[.\[]|$")  # of the prefixes of a path
_OPENINGS: Final = ("", "Unknown field ")  # of sentences about a field


class Origins:
    """Paths of a chat's fields, each with the path that the client sent. An entry holds for all within it, except where a
    longer one does.
    """

    def __init__(self, paths: Mapping[str, str] = MappingProxyType({})) -> None:
        self._paths = dict(paths)

    def add(self, path: str, sent: str) -> None:
        """Records where a field comes from."""
        self._paths[path] = sent

    def of(self, path: str) -> str:
        """Returns the client's path of a field."""
        for end in reversed([found.start() for found in _ENDS.finditer(path)]):
            if (sent := self._paths.get(path[:end])) is not None:
                return sent + path[end:]
        return path

    def rename(self, error: BadRequest) -> None:
        """Lets the error of a chat name the client's field. What its sentence quotes stays as it is."""
        if (old := error.param) is None:
            return
        error.param = self.of(old)
        for opening in _OPENINGS:
            if error.message.startswith(opening + old):
                error.message = opening + error.param + error.message.removeprefix(opening + old)
                return
