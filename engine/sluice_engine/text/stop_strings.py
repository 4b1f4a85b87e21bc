"""Finds stop strings across token boundaries: text that may become a stop string is not emitted until that is decided.

At most max(len(stop)) − 1 characters are held back: only a tail that is a prefix of a stop string.
"""


class StopScanner:
    """Takes text and returns the text to emit. `stopped` becomes true at the first stop string."""

    def __init__(self, stops: tuple[str, ...], *, show: bool = False) -> None:
        """`show` states whether the stop string itself is emitted."""
        self._stops = stops
        self._show = show
        self._held = ""
        self._longest = max((len(stop) for stop in stops), default=0)
        self.stopped = False
        self.matched: str | None = None  # the stop string

    def feed(self, text: str) -> str:
        """The text that is safe to emit: everything before a stop string, without a tail that may begin one."""
        if not self._stops:
            return text
        if self.stopped:
            return ""
        text = self._held + text
        found = [(at, at + len(stop)) for stop in self._stops if (at := text.find(stop)) >= 0]
        if found:
            self.stopped = True
            self._held = ""
            start, end = min(found)
            self.matched = text[start:end]
            return text[: end if self._show else start]
        keep = self._tail_to_hold(text)
        self._held = text[len(text) - keep :]
        return text[: len(text) - keep]

    def flush(self) -> str:
        """The held-back text, at the end of the stream, when no stop string can complete."""
        held, self._held = self._held, ""
        return held

    def _tail_to_hold(self, text: str) -> int:
        for length in range(min(len(text), self._longest - 1), 0, -1):
            tail = text[len(text) - length :]
            if any(stop.startswith(tail) for stop in self._stops):
                return length
        return 0
