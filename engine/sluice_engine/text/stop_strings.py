"""Finds stop strings across token boundaries: text that may become a stop string is not emitted until that is decided.

Each stop string is matched by the algorithm of Knuth, Morris and Pratt (1977): a character costs a constant per stop string
that has begun, whatever came before, and memory is one number per character of the stop strings.
"""

from array import array
from collections.abc import Sequence


class StopScanner:
    """Takes text and returns the text to emit. `stopped` becomes true at the first stop string that is complete.

    Of several that are complete with the same character, the longest counts. How the text is split makes no difference.
    """

    def __init__(self, stops: Sequence[str], *, show: bool = False) -> None:
        """`show` states whether the stop string itself is emitted."""
        self._starting: dict[str, list[_Matcher]] = {}  # by their first character
        for stop in dict.fromkeys(stops):
            self._starting.setdefault(stop[0], []).append(_Matcher(stop))
        self._begun: list[_Matcher] = []  # those of which a part is matched
        self._show = show
        self._held = ""  # as long as the longest part that is matched
        self.stopped = False
        self.matched: str | None = None  # the stop string

    def feed(self, text: str) -> str:
        """The text that is safe to emit: everything before a stop string, without a tail that may begin one."""
        if self.stopped:
            return ""
        if not self._begun and self._starting.keys().isdisjoint(text):
            return text
        for place, character in enumerate(text):
            if (stop := self._advance(character)) is not None:
                self.stopped, self.matched = True, stop
                seen, self._held = self._held + text[: place + 1], ""
                return seen if self._show else seen[: -len(stop)]
        seen = self._held + text
        keep = max((matcher.length for matcher in self._begun), default=0)
        self._held = seen[len(seen) - keep :]
        return seen[: len(seen) - keep]

    def flush(self) -> str:
        """The held-back text, at the end of the stream, when no stop string can complete."""
        held, self._held = self._held, ""
        self._begun.clear()
        return held

    def _advance(self, character: str) -> str | None:
        """Matches one more character. Returns the stop string that it completes."""
        starting = self._starting.get(character, ())
        if not self._begun and not starting:
            return None
        tried = [*self._begun, *(matcher for matcher in starting if not matcher.length)]
        complete = [matcher.stop for matcher in tried if matcher.advance(character)]
        self._begun = [matcher for matcher in tried if matcher.length]
        return max(complete, key=len, default=None)


class _Matcher:
    """How far one stop string is matched: `length` is the longest end of the text so far that begins it."""

    def __init__(self, stop: str) -> None:
        self.stop = stop
        self.length = 0
        self._borders = array("i", [0])  # the results of `_border` so far, from length 1

    def advance(self, character: str) -> bool:
        """Matches one more character. Returns whether the stop string is complete."""
        self.length = self._longer(self.length, character)
        return self.length == len(self.stop)

    def _longer(self, length: int, character: str) -> int:
        while length and self.stop[length] != character:
            length = self._border(length)
        return length + (self.stop[length] == character)

    def _border(self, length: int) -> int:
        """The longest beginning of the stop string that also ends its first `length` characters, of which it is not all."""
        for end in range(len(self._borders), length):
            self._borders.append(self._longer(self._borders[-1], self.stop[end]))
        return self._borders[length - 1]
