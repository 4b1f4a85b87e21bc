"""The tokens of reads: those that engines may ask of the gateway, and the one that the gateway's own admin port may ask for.

Those of a cluster derive from one key in a file that is mounted from a Secret. The operator writes the Secret, maybe after the
gateway has started, so the file is read again every second. Engines that are given by address have one token, in a file too.
After a new key the file has the older ones as well, for engines that have not been rolled yet.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from sluice.auth.read_tokens import RELEASE, TokenFile, read_token

REFRESH_SECONDS: Final = 1.0
MOST_TRIES: Final = 10_000  # replicas; they come and go


@dataclass(frozen=True, slots=True)
class ReadOptions:
    """`key`: the file. `is_guarded`: the gateway's own admin port answers reads only with the release's token, those of
    metrics too. `token`: the file with the token of engines without an LLMDeployment.
    """

    key: Path | None = None
    is_guarded: bool = False
    token: Path | None = None


class ReadTokens:
    """The tokens by the keys that the file has, the newest first."""

    def __init__(
        self, key: Path | None, token: Path | None = None, clock: Callable[[], float] = time.monotonic
    ) -> None:
        """`token` is the file with the token of engines without an LLMDeployment."""
        self._file = TokenFile(key)
        self._other_file = TokenFile(token)
        self._other = ""
        self._clock = clock
        self._keys: tuple[str, ...] = ()
        self._read_at: float | None = None
        self._tokens: dict[tuple[str, str], str] = {}  # by key and owner
        self._tries: dict[str, int] = {}  # place of the key to use, by replica that has refused the newest

    def of(self, owner: str, replica: str = "") -> str:
        """The token for the engines of the LLMDeployment with this uid, or for those of none; empty without one."""
        self._refresh()
        if not owner:
            return self._other
        if not self._keys:
            return ""
        key = self._keys[self._tries.get(replica, 0) % len(self._keys)]
        if (key, owner) not in self._tokens:
            self._tokens[key, owner] = read_token(key, owner)
        return self._tokens[key, owner]

    def refused(self, owner: str, replica: str) -> bool:
        """Use the token of the next key for this replica; return True unless all keys' tokens were refused."""
        if not owner or len(self._keys) < 2:
            return False
        if len(self._tries) >= MOST_TRIES:
            self._tries.clear()
        self._tries[replica] = self._tries.get(replica, 0) + 1
        return self._tries[replica] < len(self._keys)

    def of_release(self) -> str:
        """The token of the gateway's own port; empty without a key, and then no read is answered."""
        return self.of(RELEASE)

    def _refresh(self) -> None:
        now = self._clock()
        if self._read_at is not None and now - self._read_at < REFRESH_SECONDS:
            return
        self._read_at = now
        self._other = self._other_file.value()
        if (keys := tuple(self._file.value().split())) != self._keys:
            self._keys, self._tokens, self._tries = keys, {}, {}
