"""The caller of one request: its tenant, its priority ceiling and its rates. Nothing of it comes from the request."""

from dataclasses import dataclass
from typing import Final

from aiohttp import web

from sluice.auth.key_file import ApiKey
from sluice.auth.rate_limits import RateLimits
from sluice.httpapi.errors import Forbidden


@dataclass(frozen=True, slots=True)
class Caller:
    """The key of a request together with the buckets of its tenant."""

    key: ApiKey
    rates: RateLimits

    @property
    def tenant(self) -> str:
        """The tenant for fair shares and for the prefix cache; "" without a key file."""
        return self.key.name

    def may_use(self, model: str) -> bool:
        """Whether the key may use the model of this served name."""
        return self.key.models is None or model in self.key.models

    def check_model(self, model: str) -> None:
        """Raises Forbidden if the key may not use the model."""
        if not self.may_use(model):
            raise Forbidden(
                f"The key {self.key.name!r} may not use the model {model!r}; have it added to the models of the key.",
                param="model",
                code="model_not_allowed",
            )

    def priority(self, requested: int) -> int:
        """Returns the requested priority, lowered to the key's ceiling."""
        return min(requested, self.key.max_priority)

    def take_request(self) -> None:
        """Takes one request from the tenant's rate. Raises RateLimited."""
        self.rates.take(self.key, "requests", 1)

    def take_prompt(self, tokens: int) -> None:
        """Takes the prompt's tokens from the tenant's rate. Raises RateLimited."""
        self.rates.take(self.key, "tokens", tokens)

    def charge(self, tokens: int) -> None:
        """Takes produced tokens from the tenant's rate; a negative number refunds a prompt that was not served."""
        self.rates.charge(self.key, tokens)

    def headers(self) -> dict[str, str]:
        """The rate-limit headers of a response."""
        return self.rates.headers(self.key)


CALLER: Final = web.RequestKey("caller", Caller)


def rate_headers(request: web.BaseRequest) -> dict[str, str]:
    """The rate-limit headers of a response; empty for a request whose caller is not known or has no limits."""
    caller = request.get(CALLER)
    return {} if caller is None else caller.headers()


def caller_of(request: web.BaseRequest) -> Caller:
    """Returns the caller that the router has authorized. Raises KeyError on a port without API keys."""
    return request[CALLER]
