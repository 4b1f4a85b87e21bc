"""Which overdue requests are served although they cannot meet their TTFT target any more.

The longest prompts are late in each of a client's attempts while an overload lasts. An overdue request whose client
gives up after one more rejection takes its place in the policy's order again. These are few of all that start, because
each makes another one wait: in an overload that does not end, some requests have to be refused.
"""

from typing import Final

from sluice_engine.control.limit_controller import predicted_wait
from sluice_engine.request import Request
from sluice_engine.scheduler.state import SchedulerState

SHARE: Final = 1 / 16  # of the requests that start
BURST: Final = 8.0  # at once, after as many others


def earn_exemption(state: SchedulerState) -> None:
    """One more request has started."""
    state.exemptions = min(BURST, state.exemptions + SHARE)


def exempt_overdue(state: SchedulerState, now: float) -> None:
    """Exempt overdue requests from their targets, the longest late first, up to one whose client tries again."""
    while state.exemptions >= 1.0 and (overdue := overdue_request(state, now)) is not None and overdue.last_attempt:
        state.exemptions -= 1.0
        state.waiting.exempt(overdue)


def overdue_request(state: SchedulerState, now: float) -> Request | None:
    """The longest late request, if it has waited for longer than the last one in a full queue does, and than its target."""
    longest = state.waiting.longest_late()
    if longest is None:
        return None
    bounds, places = state.limits.current, state.places
    wait = predicted_wait(bounds.max_queue, places, places, state.expected_residence)
    return longest if now - longest.arrived_at > max(wait, bounds.ttft_target) else None
