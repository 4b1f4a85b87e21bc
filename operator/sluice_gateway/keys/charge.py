"""What one request costs of its tenant's token rate: an estimate of its prompt at first, then what the replica counted."""

from sluice.auth.caller import Caller


class PromptCharge:
    """The tokens that one request has taken. A request without an answer is refunded."""

    def __init__(self, caller: Caller, estimate: int) -> None:
        """Raises RateLimited if the tenant's rate does not allow the estimated prompt."""
        self._caller = caller
        self._estimate = estimate
        self._answered = False
        if estimate:
            caller.take_prompt(estimate)

    def prompt(self, tokens: float) -> None:
        """A replica has counted the prompt."""
        self._answered = True
        self._caller.charge(round(tokens) - self._estimate)

    def output(self, tokens: int) -> None:
        """A replica has produced tokens."""
        if tokens:
            self._caller.charge(tokens)

    def end(self) -> None:
        """The request has ended."""
        if not self._answered and self._estimate:
            self._caller.charge(-self._estimate)
