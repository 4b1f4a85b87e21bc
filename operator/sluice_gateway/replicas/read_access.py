"""The tokens of reads: those that engines may ask of the gateway, and the one that the gateway's own admin port may ask for.

Those of a cluster derive from one key in a file that is mounted from a Secret. The operator writes the Secret, maybe after the
gateway has started, so the file is read again every second. Engines that are given by address have one token, in a file too.
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
    """`key`: the file. `is_guarded`: the gateway's own admin port answers reads only with the release's token, those of
    metrics too. `token`: the file with the token of engines without an LLMDeployment.
    """

    key: Path | None = None
    is_guarded: bool = False
    token: Path | None = None


class ReadTokens:
    """The tokens by the key that the file has."""

    def __init__(
        self, key: Path | None, token: Path | None = None, clock: Callable[[], float] = time.monotonic
    ) -> None:
        """`token` is the file with the token of engines without an LLMDeployment."""
        self._file = TokenFile(key)
        self._other_file = TokenFile(token)
        self._other = ""
        self._clock = clock
        self._key = ""
        self._read_at: float | None = None
        self._tokens: dict[str, str] = {}  # by owner

    def of(self, owner: str) -> str:
        """The token for the engines of the LLMDeployment with this uid, or for those of none; empty without one."""
        self._refresh()
        if not owner:
            return self._other
        if not self._key:
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
        self._other = self._other_file.value()
        if (key := self._file.value()) != self._key:
            self._key, self._tokens = key, {}
