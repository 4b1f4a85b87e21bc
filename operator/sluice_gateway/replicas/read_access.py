"""The tokens of reads: those that engines may ask of the gateway, and the one that the gateway's own admin port may ask for.

All derive from one key in a file that is mounted from a Secret. The operator writes the Secret, maybe after the gateway has
started, so the file is read again every second.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from sluice.auth.read_tokens import RELEASE, TokenFile, read_token

REFRESH_SECONDS: Final = 1.0


@dataclass(frozen=True, slots=True)
class ReadOptions:
    """`key`: the file. `is_guarded`: the gateway's own admin port answers reads only with the release's token."""

    key: Path | None = None
    is_guarded: bool = False


class ReadTokens:
    """The tokens by the key that the file has."""

    def __init__(self, key: Path | None, clock: Callable[[], float] = time.monotonic) -> None:
        self._file = TokenFile(key)
        self._clock = clock
        self._key = ""
        self._read_at: float | None = None
        self._tokens: dict[str, str] = {}  # by owner

    def of(self, owner: str) -> str:
        """The token for the engines of the LLMDeployment with this uid; empty without a key or a uid."""
        self._refresh()
        if not self._key or not owner:
            return ""
        if owner not in self._tokens:
            self._tokens[owner] = read_token(self._key, owner)
        return self._tokens[owner]

    def of_release(self) -> str:
        """The token of the gateway's own port; empty without a key, and then no read is answered."""
        return self.of(RELEASE)

    def _refresh(self) -> None:
        now = self._clock()
        if self._read_at is not None and now - self._read_at < REFRESH_SECONDS:
            return
        self._read_at = now
        if (key := self._file.value()) != self._key:
            self._key, self._tokens = key, {}
