"""One request while it is offered to replicas: what each try needs of it."""

from dataclasses import dataclass

from aiohttp import web

from sluice.httpapi.body import release
from sluice_gateway.forwarding.dispatch import Claim
from sluice_gateway.holding import HoldQueue
from sluice_gateway.keys.charge import PromptCharge
from sluice_gateway.request_log import RequestWay
from sluice_gateway.routing import Prompt


@dataclass(slots=True)
class Offer:
    """A request that is offered to replicas. `arrived_at`: monotonic seconds when its body was complete."""

    request: web.BaseRequest
    body: bytes
    model: str | None
    prompt: Prompt
    claim: Claim
    charge: PromptCharge
    way: RequestWay
    hold_queue: HoldQueue
    resume: bool
    arrived_at: float

    def release(self) -> None:
        """Drop what only a retry needs: a stream may last for minutes, and a prompt may have megabytes."""
        self.body = b""
        self.prompt = self.prompt._replace(steps=())
        release(self.request)
