"""Defines `spec.routing`: how the gateway chooses the replica of a request."""

from typing import Annotated, ClassVar, Literal

from pydantic import Field

from sluice_operator.api.base import Model, Rule
from sluice_operator.api.patterns import HEADER_NAME


class Routing(Model):
    """How the gateway (the chart's, or that of `sluice up`) chooses the replica of a request. A change applies to the next
    request and restarts nothing. Requests to the model's own Service are spread by Kubernetes."""

    RULES: ClassVar[tuple[Rule, ...]] = (
        # The gateway removes such headers from what clients send.
        Rule(
            cel="!has(self.sessionHeader) || !self.sessionHeader.lowerAscii().startsWith('x-sluice-')",
            sentence="routing.sessionHeader must not begin with x-sluice-: such headers are the gateway's own",
            holds=lambda r: r.session_header is None or not r.session_header.lower().startswith("x-sluice-"),
        ),
    )

    policy: Literal["PrefixAware", "LeastLoaded", "RoundRobin"] | None = None
    """policy selects the replica of a request. PrefixAware: the replica with the least predicted time to first token,
    preferring those that have the prompt's prefix cached. LeastLoaded: the replica with the fewest requests. RoundRobin:
    each replica in turn. Defaults to the policy of the gateway (gateway.policy of the chart), which is PrefixAware unless
    it is set."""
    session_header: Annotated[str, Field(min_length=1, max_length=128, pattern=HEADER_NAME)] | None = None
    """sessionHeader is the name of a request header, e.g. x-session-id. Requests of one API key with the same value of it
    go to the same replica while that replica is ready. Requests without it follow policy. Defaults to the header of the
    gateway (gateway.sessionHeader of the chart), which is none unless it is set."""
