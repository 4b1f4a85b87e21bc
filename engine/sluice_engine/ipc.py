"""What the HTTP process and the engine process say to each other over a Unix socket (mode 0600).

Small frozen messages, msgspec msgpack, each frame a 4-byte big-endian length and a body. The HTTP process is the
parent: it listens, spawns the engine process, and both end when the other one does. A request can fail; the loop
cannot: whatever goes wrong with one request comes back as its own `Finished`.

Times that cross the socket are `time.monotonic()` seconds: both processes run on one machine, one clock.
"""

import asyncio
import struct
from typing import Literal

import msgspec

from sluice_engine.request import TokenLogprob

FinishReason = Literal["stop", "length", "abort", "error"]
RejectReason = Literal["queue_full", "displaced", "kv_full", "draining", "slo_unreachable"]


class SamplingParams(msgspec.Struct, frozen=True, kw_only=True):
    """How to choose tokens. Validated by the HTTP process (`server/validate.py`) before it crosses the socket."""

    max_tokens: int
    temperature: float = 1.0  # 0 is greedy
    top_k: int = 0  # 0: off
    top_p: float = 1.0
    seed: int | None = None
    ignore_eos: bool = False
    stop_token_ids: tuple[int, ...] = ()  # stop strings are found by the HTTP process, which owns the text
    min_p: float = 0.0
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    repetition_penalty: float = 1.0
    logit_bias: tuple[tuple[int, float], ...] = ()  # (token id, what is added to its logit)
    min_tokens: int = 0  # no stop token before so many
    logprobs: int | None = None  # how many of the most likely tokens beside the chosen one; None: no logprobs


# --- HTTP process → engine process -----------------------------------------------------------------------------


class Submit(msgspec.Struct, frozen=True, tag=True):
    """A validated request. `arrived_at` is when the HTTP process had read it (monotonic seconds).

    `samples` are further answers to the same prompt, a name and a seed each: the prompt is computed once for all, and
    each answer has deltas and an end of its own. A refusal of the request refuses them too.

    A target of its own, in seconds, tells the scheduler what the client asked for (`slo`); None is the engine's.
    """

    request_id: str
    prompt_token_ids: tuple[int, ...]
    params: SamplingParams
    arrived_at: float
    priority: int = 0  # −100..100, higher is sooner
    tenant: str = ""  # whose share of the engine it is
    ttft_target: float | None = None
    itl_target: float | None = None
    samples: tuple[tuple[str, int | None], ...] = ()

    @property
    def names(self) -> tuple[str, ...]:
        """The request's own id and those of its further answers."""
        return (self.request_id, *(name for name, _ in self.samples))


class Encode(msgspec.Struct, frozen=True, tag=True):
    """A text to compute whole, for its embedding or its score; answered by one `Delta` with a vector. Fields as in
    `Submit`; `token_types` has one per token, or none where all are 0."""

    request_id: str
    token_ids: tuple[int, ...]
    arrived_at: float
    token_types: tuple[int, ...] = ()
    priority: int = 0
    tenant: str = ""
    ttft_target: float | None = None

    @property
    def names(self) -> tuple[str, ...]:
        """As a `Submit` has them: its own id alone."""
        return (self.request_id,)


class Cancel(msgspec.Struct, frozen=True, tag=True):
    """The request ends now and its blocks are freed within a step; unknown or ended ids are ignored.

    `reason` is "abort" for a client that left, "stop" when a stop string was found in the text.
    """

    request_id: str
    reason: Literal["abort", "stop"]


class LimitsPatch(msgspec.Struct, frozen=True, tag=True, kw_only=True):
    """The body of `PATCH /limits`, checked. None leaves a value as it is. Times in seconds."""

    concurrency_min: int | None = None
    concurrency_max: int | None = None
    max_queue: int | None = None
    max_batched_tokens: int | None = None
    kv_watermark: float | None = None  # share of the pool that running requests may hold, 0..1
    itl_target: float | None = None
    ttft_target: float | None = None
    ttl: float | None = None


class Drain(msgspec.Struct, frozen=True, tag=True):
    """Refuse what comes from now on; finish what is here."""


class StateRequest(msgspec.Struct, frozen=True, tag=True):
    """Ask for a snapshot; answered by `StateReply` with the same token."""

    token: int


ToEngine = Submit | Encode | Cancel | LimitsPatch | Drain | StateRequest

# --- engine process → HTTP process -----------------------------------------------------------------------------


class Loading(msgspec.Struct, frozen=True, tag=True):
    """Progress of the start: a phase of `contract.LOAD_PHASES`, its share done 0..1, seconds spent in it so far."""

    phase: str
    fraction: float
    seconds: float


class Ready(msgspec.Struct, frozen=True, tag=True, kw_only=True):
    """The engine serves from now on."""

    dtype: str
    device: str
    block_size: float  # tokens that a block is worth: of `block_size` ones it holds one group of layers
    num_blocks: int
    max_model_length: int
    vocab_size: int  # width of the logits: token ids at or beyond it are refused
    task: Literal["generate", "embed", "score"] = "generate"
    vector_size: int = 0  # numbers in a text's vector; 0 for a model that generates
    paced: bool
    load_seconds: dict[str, float]  # phase → seconds


class Failed(msgspec.Struct, frozen=True, tag=True):
    """The engine cannot start or cannot go on. `reason` is one of the contract's REASON_* names; the message says
    what, why and what to do. The process exits after sending it."""

    reason: str
    message: str


class Delta(msgspec.Struct, frozen=True, array_like=True):
    """New tokens of one request from one step. `finish` is set on the last one (then token_ids may be empty)."""

    request_id: str
    token_ids: tuple[int, ...]
    finish: FinishReason | None = None
    error: str | None = None  # a sentence, with finish == "error"
    cached_tokens: int = 0  # prompt tokens found in the prefix cache (first delta)
    queue_seconds: float = 0.0  # arrival to first scheduled (first delta)
    logprobs: tuple[TokenLogprob, ...] = ()  # one per token, where they were asked for
    vector: bytes = b""  # of a whole text: its embedding or its one score, float32 in little-endian


class Rejected(msgspec.Struct, frozen=True, tag=True):
    """Refused before any work, on arrival or while it waited. `retry_after` is the predicted wait in seconds."""

    request_id: str
    reason: RejectReason
    retry_after: float
    message: str


class Limits(msgspec.Struct, frozen=True, kw_only=True):
    """The limits in force. `concurrency` is where the fast loop has put itself inside [min, max]."""

    concurrency: int
    concurrency_min: int
    concurrency_max: int
    max_queue: int
    max_batched_tokens: int
    kv_watermark: float
    itl_target: float
    ttft_target: float
    ttl: float | None  # seconds until the started-with bounds return; None when they are in force
    reason: str  # what binds: "itl", "kv", "bounds", "cold"


class StepReport(msgspec.Struct, frozen=True, tag=True, kw_only=True):
    """One step: its outputs and everything `/metrics` needs to know of it.

    Also sent without a step (seconds == 0) when limits move or a request leaves while nothing runs.
    """

    deltas: tuple[Delta, ...] = ()
    ended_at: float
    seconds: float
    prefill_tokens: int
    prefill_context: float
    sequences: int  # decode rows
    kv_tokens: int
    generated_tokens: int
    prompt_tokens: int  # prompt tokens of requests first scheduled in this step
    cached_prompt_tokens: int
    preemptions: int
    swaps: int = 0  # of them, those that copied to host memory
    running: int
    waiting: int
    tokens_in_flight: int
    blocks_held: int
    blocks_cached: int
    blocks_free: int
    limits: Limits
    model: tuple[float, float, float, float, float]  # contract.STEP_MODEL_TERMS
    model_error: float
    model_steps: int
    draft_tokens: int = 0  # verified in this step
    accepted_draft_tokens: int = 0


class StateReply(msgspec.Struct, frozen=True, tag=True):
    """The scheduler's snapshot as plain JSON-able data: requests, blocks by owner, limits, last steps."""

    token: int
    state: dict[str, object]


FromEngine = Loading | Ready | Failed | Rejected | StepReport | StateReply

# --- frames ----------------------------------------------------------------------------------------------------

_LENGTH = struct.Struct(">I")
MAX_FRAME_BYTES = 64 * 1024 * 1024

_encoder = msgspec.msgpack.Encoder()
_to_engine = msgspec.msgpack.Decoder(ToEngine)
_from_engine = msgspec.msgpack.Decoder(FromEngine)


def encode_frame(message: ToEngine | FromEngine) -> bytes:
    """One message as length-prefixed bytes."""
    body = _encoder.encode(message)
    return _LENGTH.pack(len(body)) + body


async def read_frame(reader: asyncio.StreamReader) -> bytes | None:
    """The next frame's body, or None at the end of the stream."""
    try:
        head = await reader.readexactly(_LENGTH.size)
        (length,) = _LENGTH.unpack(head)
        if length > MAX_FRAME_BYTES:
            raise ValueError(f"frame of {length} bytes exceeds {MAX_FRAME_BYTES}")
        return await reader.readexactly(length)
    except (asyncio.IncompleteReadError, ConnectionResetError):
        return None


def decode_to_engine(body: bytes) -> ToEngine:
    """A message for the engine process. Raises msgspec.ValidationError on anything else."""
    return _to_engine.decode(body)


def decode_from_engine(body: bytes) -> FromEngine:
    """A message for the HTTP process. Raises msgspec.ValidationError on anything else."""
    return _from_engine.decode(body)
