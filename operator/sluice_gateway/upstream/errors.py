"""Why an engine has not answered. The proxy decides from these whether and where a request goes next."""


class UpstreamError(Exception):
    """The engine has not answered, or not completely."""


class ConnectFailed(UpstreamError):
    """No connection: the engine has not had the request."""


class ConnectTimedOut(UpstreamError):
    """No connection in time: the engine has not had the request."""


class NotHttp(UpstreamError):
    """What has come is not HTTP."""


class ConnectionLost(UpstreamError):
    """The connection has ended before the answer did."""
