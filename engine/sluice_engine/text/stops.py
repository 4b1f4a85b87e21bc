"""Stop strings across token borders: nothing that may become a stop string is shown before it is settled.

At most max(len(stop)) − 1 characters are held back: only a tail that is the beginning of some stop string.
"""


class StopScanner:
    """Feeds on text, gives back what may be shown. `stopped` turns true at the first stop string."""

    def __init__(self, stops: tuple[str, ...]) -> None:
        self._stops = stops
        self._held = ""
        self._longest = max((len(stop) for stop in stops), default=0)
        self.stopped = False

    def feed(self, text: str) -> str:
        """The text that is safe to show now: everything before a stop string, less a tail that may begin one."""
        if not self._stops:
            return text
        if self.stopped:
            return ""
        text = self._held + text
        cut = min((at for stop in self._stops if (at := text.find(stop)) >= 0), default=-1)
        if cut >= 0:
            self.stopped = True
            self._held = ""
            return text[:cut]
        keep = self._tail_to_hold(text)
        self._held = text[len(text) - keep :]
        return text[: len(text) - keep]

    def flush(self) -> str:
        """What was held back, at the end of the stream: no stop string can complete any more."""
        held, self._held = self._held, ""
        return held

    def _tail_to_hold(self, text: str) -> int:
        for length in range(min(len(text), self._longest - 1), 0, -1):
            tail = text[len(text) - length :]
            if any(stop.startswith(tail) for stop in self._stops):
                return length
        return 0
