"""Messages between the HTTP process and the engine process over a Unix socket (mode 0600).

Messages are small frozen msgspec structs in msgpack. A frame is a 4-byte big-endian length and a body. The HTTP process
is the parent: it listens and spawns the engine process, and each process ends when the other one ends. A failure of one
request ends only that request: it is reported in that request's `Delta` and never stops the step loop.

Times that cross the socket are `time.monotonic()` seconds, because both processes share the machine's clock.
"""

import struct
from collections.abc import Callable
from typing import Final, Literal

import msgspec

from sluice_engine.limits import LimitChanges, Limits, LimitsInForce
from sluice_engine.request import TokenLogprob
from sluice_engine.sampling_params import SamplingParams

FinishReason = Literal["stop", "length", "abort", "error"]
RejectReason = Literal["queue_full", "displaced", "kv_full", "draining", "slo_unreachable"]


# --- HTTP process → engine process -----------------------------------------------------------------------------


class Submit(msgspec.Struct, frozen=True, tag=True):
    """A validated generation request. `arrived_at` is the time at which the HTTP process had read it (monotonic
    seconds).

    `samples` are the further samples of the same prompt, each with its own request id and seed. The prompt is computed
    once for all of them; each sample has its own deltas and its own finish. A rejection of the request rejects all
    samples.

    `ttft_target` and `itl_target` (seconds) are the client's own SLO targets; None means the engine's. `offered_before`
    is True if another replica rejected the request and has counted its arrival. `waited` are the seconds since
    `arrived_at` that it spent in a gateway's queue. `last_attempt` is True if its client gives up after a rejection.
    """

    request_id: str
    prompt_token_ids: tuple[int, ...]
    params: SamplingParams
    arrived_at: float
    priority: int = 0  # −100..100, higher is sooner
    tenant: str = ""  # name of the verified API key, for fair shares and the prefix cache; "" without a key file
    ttft_target: float | None = None
    itl_target: float | None = None
    samples: tuple[tuple[str, int | None], ...] = ()
    offered_before: bool = False
    waited: float = 0.0
    cache_salt: str = ""  # the client's own separation of cached prefixes, within its tenant
    output_token_ids: tuple[int, ...] = ()  # the output as far as another replica has produced it
    prompt_tag: str = ""  # names the prompt in `KvEvents`; "" without a reader
    last_attempt: bool = False

    @property
    def names(self) -> tuple[str, ...]:
        """The request's own id and the ids of its further samples."""
        return (self.request_id, *(name for name, _ in self.samples))


class Encode(msgspec.Struct, frozen=True, tag=True):
    """A request to encode a whole text into an embedding or a score, answered by one `Delta` with a vector. Fields as
    in `Submit`. `token_types` has one entry per token, or is empty where all are 0.
    """

    request_id: str
    token_ids: tuple[int, ...]
    arrived_at: float
    token_types: tuple[int, ...] = ()
    priority: int = 0
    tenant: str = ""
    ttft_target: float | None = None
    offered_before: bool = False
    waited: float = 0.0
    last_attempt: bool = False

    @property
    def names(self) -> tuple[str, ...]:
        """The request's own id; same interface as `Submit.names`."""
        return (self.request_id,)


class Cancel(msgspec.Struct, frozen=True, tag=True):
    """Ends a request immediately; its blocks are freed within one step. Unknown and finished ids are ignored.

    `reason` is "abort" for a client disconnect and "stop" when a stop string was found in the text.
    """

    request_id: str
    reason: Literal["abort", "stop"]


class LimitsPatch(msgspec.Struct, frozen=True, tag=True, kw_only=True):
    """The validated body of `PATCH /limits`: changes that hold for `ttl` seconds, or until the next patch if None."""

    changes: LimitChanges = {}
    ttl: float | None = None


class BaseLimits(msgspec.Struct, frozen=True, tag=True):
    """The base limits. They hold until the next such message; a patch in force keeps overriding its fields."""

    limits: Limits


class TenantWeights(msgspec.Struct, frozen=True, tag=True):
    """The shares of tenants under contention. A tenant without an entry has weight 1; replaces all earlier weights."""

    weights: dict[str, float]


class Drain(msgspec.Struct, frozen=True, tag=True):
    """Reject new requests from now on and finish the accepted ones."""


class FollowKv(msgspec.Struct, frozen=True, tag=True):
    """Send `KvEvents` from now on, or no longer."""

    on: bool


class StateRequest(msgspec.Struct, frozen=True, tag=True):
    """Request a snapshot, answered by a `StateReply` with the same token."""

    token: int


ToEngine = Submit | Encode | Cancel | LimitsPatch | BaseLimits | TenantWeights | Drain | FollowKv | StateRequest

# --- engine process → HTTP process -----------------------------------------------------------------------------


class Loading(msgspec.Struct, frozen=True, tag=True):
    """Startup progress: a phase of `contract.LOAD_PHASES`, its completed fraction 0..1, the seconds spent in it so far,
    and the progress in words where there is more to say.
    """

    phase: str
    fraction: float
    seconds: float
    text: str = ""  # "42 % of 16.1 GB at 2.1 GB/s, 5 s left"


class Ready(msgspec.Struct, frozen=True, tag=True, kw_only=True):
    """The engine is loaded and serves requests."""

    dtype: str
    device: str
    block_size: float  # effective tokens per block: the configured block size over the number of layer groups
    num_blocks: int
    max_model_length: int
    vocab_size: int  # width of the logits; token ids at or beyond it are rejected
    task: Literal["generate", "embed", "score"] = "generate"
    vector_size: int = 0  # length of a text's vector; 0 for a generating model
    paced: bool
    load_seconds: dict[str, float]  # phase → seconds


class Failed(msgspec.Struct, frozen=True, tag=True):
    """The engine cannot start or cannot continue. `reason` is one of the contract's REASON_* names; the message states
    the cause and the remedy. The process exits after sending it.
    """

    reason: str
    message: str


class Delta(msgspec.Struct, frozen=True, array_like=True):
    """New output tokens of one request from one step. The last delta has `finish` set and may have no token_ids; one with
    the logprobs of a prompt's chunk may have neither.
    """

    request_id: str
    token_ids: tuple[int, ...]
    finish: FinishReason | None = None
    error: str | None = None  # a sentence, with finish == "error"
    cached_tokens: int = 0  # prompt tokens hit in the prefix cache (first delta only)
    queue_seconds: float = 0.0  # from arrival to first scheduling (first delta only)
    logprobs: tuple[TokenLogprob, ...] = ()  # one per token if requested
    prompt_logprobs: tuple[TokenLogprob, ...] = ()  # of the next tokens of the prompt; the first token has none
    vector: bytes = b""  # of an encoded text: its embedding or its single score, little-endian float32


class Rejected(msgspec.Struct, frozen=True, tag=True):
    """The request was rejected before any computation, on arrival or while it waited. `retry_after` is the predicted
    wait in seconds.
    """

    request_id: str
    reason: RejectReason
    retry_after: float
    message: str


class ShadowCounts(msgspec.Struct, frozen=True, array_like=True):
    """What the shadow queues have counted since the previous report, in requests (`sluice_perfmodel.shadow_queues`)."""

    requests: int
    unreachable: int
    late: tuple[float, ...]  # per load of LOADS


class StepReport(msgspec.Struct, frozen=True, tag=True, kw_only=True):
    """One step: its outputs and every value that `/metrics` needs from it.

    A report is also sent without a step (seconds == 0) when the limits change, or a request finishes or is rejected while
    no step runs.
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
    swaps: int = 0  # preemptions that copied their KV to host memory
    running: int
    waiting: int
    tokens_in_flight: int
    blocks_held: int
    blocks_cached: int
    blocks_free: int
    limits: LimitsInForce
    model: tuple[float, float, float, float, float]  # contract.STEP_MODEL_TERMS
    model_error: float
    model_steps: int
    draft_tokens: int = 0  # verified in this step
    accepted_draft_tokens: int = 0
    shadow: ShadowCounts | None = None  # None: no arrival since the previous report


class KvStored(msgspec.Struct, frozen=True, array_like=True, tag=True):
    """The prompt that was tagged so is computed: the numbers of its leading blocks of `block_tokens` tokens that can be hit."""

    tag: str
    tokens: int
    block_tokens: int
    blocks: tuple[int, ...]


class KvRemoved(msgspec.Struct, frozen=True, array_like=True, tag=True):
    """These blocks, which a `KvStored` has named, can be hit no longer."""

    blocks: tuple[int, ...]


class KvEvents(msgspec.Struct, frozen=True, tag=True):
    """What has happened to the blocks of tagged prompts, in order; sent after the report of a step, if anything has."""

    events: tuple[KvStored | KvRemoved, ...]


class StateReply(msgspec.Struct, frozen=True, tag=True):
    """The scheduler's snapshot as JSON-serialisable data: requests, blocks by owner, limits and the last steps."""

    token: int
    state: dict[str, object]


FromEngine = Loading | Ready | Failed | Rejected | StepReport | KvEvents | StateReply

# --- frames ----------------------------------------------------------------------------------------------------

_LENGTH = struct.Struct(">I")
HEAD_BYTES: Final = _LENGTH.size  # before the body of a frame
MAX_FRAME_BYTES: Final = 64 * 1024 * 1024

_encoder = msgspec.msgpack.Encoder()
_to_engine = msgspec.msgpack.Decoder(ToEngine)
_from_engine = msgspec.msgpack.Decoder(FromEngine)


def encode_frame(message: ToEngine | FromEngine) -> bytes:
    """One message as length-prefixed bytes. Raises ValueError if the body exceeds MAX_FRAME_BYTES, which the receiver
    rejects.
    """
    body = _encoder.encode(message)
    if len(body) > MAX_FRAME_BYTES:
        raise ValueError(f"a {type(message).__name__} of {len(body)} bytes exceeds {MAX_FRAME_BYTES}")
    return _LENGTH.pack(len(body)) + body


def frame_length(head: bytes | bytearray) -> int:
    """The length of a frame's body in bytes, from its head. Raises ValueError beyond MAX_FRAME_BYTES."""
    (length,) = _LENGTH.unpack(head)
    if length > MAX_FRAME_BYTES:
        raise ValueError(f"frame of {length} bytes exceeds {MAX_FRAME_BYTES}")
    return int(length)


def read_frame(read: Callable[[int], bytes]) -> bytes | None:
    """The next frame's body from a blocking stream, or None at its end. Raises ValueError for a frame longer than
    MAX_FRAME_BYTES.
    """
    head = read(HEAD_BYTES)
    if len(head) < HEAD_BYTES:
        return None
    length = frame_length(head)
    body = read(length)
    return body if len(body) == length else None


def decode_to_engine(body: bytes) -> ToEngine:
    """Decode a message for the engine process. Raises msgspec.ValidationError for any other content."""
    return _to_engine.decode(body)


def decode_from_engine(body: bytes) -> FromEngine:
    """Decode a message for the HTTP process. Raises msgspec.ValidationError for any other content."""
    return _from_engine.decode(body)
