"""The error of a request to an API server. It imports no client library, so that plain code can name it."""


class ClusterError(Exception):
    """A request to the cluster failed and may be retried later. The message names the request and the response.

    `status` is the HTTP status of the API server's response, 0 without a response; `retry_after` its header, in seconds.
    """

    def __init__(self, message: str, status: int = 0, retry_after: float = 0.0) -> None:
        super().__init__(message)
        self.status = status
        self.retry_after = retry_after
