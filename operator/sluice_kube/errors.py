"""The error of a request to an API server. It imports no client library, so that plain code can name it."""

from typing import Final

_REFUSED: Final = (400, 403, 422)  # of RBAC, quotas and policies, and of the API server's validation
_NO_WEBHOOK: Final = "failed calling webhook"  # an internal error, which lasts as long as the webhook is away


class ClusterError(Exception):
    """A request to the cluster failed and may be retried later. The message names the request and the response.

    `status` is the HTTP status of the API server's response, 0 without a response; `retry_after` its header, in seconds.
    """

    def __init__(self, message: str, status: int = 0, retry_after: float = 0.0) -> None:
        super().__init__(message)
        self.status = status
        self.retry_after = retry_after

    @property
    def is_refusal(self) -> bool:
        """True if the request was rejected for a reason that only a user can end."""
        return self.status in _REFUSED or (self.status == 500 and _NO_WEBHOOK in str(self))
