"""The address of one replica."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Backend:
    """One replica that accepts requests. Without an admin address its load is not read.

    `model` is what its owner says that it serves; None: only the replica itself says so. `other_zone`: it is known to be in
    another zone than the gateway. `owner` is the uid of its LLMDeployment, from which the token of its reads derives.
    """

    name: str
    host: str
    port: int
    admin_url: str | None = None
    model: str | None = None
    other_zone: bool = False
    owner: str = ""

    @property
    def url(self) -> str:
        """Base URL without a trailing slash."""
        return f"http://{self.host}:{self.port}"
