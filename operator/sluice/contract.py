"""The wire contract: all names and formats that two processes must agree on.

The operator renders and scrapes pods, the engine serves and publishes metrics, the gateway routes, and the simulator
emulates all of them. None of them imports another; all import this module, and `tests/contract/` checks it for both
sides. It uses the standard library only, so that every image can contain it.
"""

import re
from typing import Final

# --- Kubernetes ------------------------------------------------------------------------------------------------

GROUP: Final = "sluice.dev"
VERSION: Final = "v1alpha1"
API_VERSION: Final = f"{GROUP}/{VERSION}"
KIND: Final = "LLMDeployment"
PLURAL: Final = "llmdeployments"
FIELD_MANAGER: Final = "sluice-operator"

LABEL_NAME: Final = "app.kubernetes.io/name"  # always "sluice-engine" on engine pods
LABEL_INSTANCE: Final = "app.kubernetes.io/instance"  # metadata.name of the LLMDeployment
LABEL_MANAGED_BY: Final = "app.kubernetes.io/managed-by"
ENGINE_APP: Final = "sluice-engine"
HEADLESS_SUFFIX: Final = "-engines"  # of the headless Service, after metadata.name of the LLMDeployment
MANAGED_BY: Final = "sluice-operator"
CANARY_SUFFIX: Final = "-canary"  # of the Deployment and the headless Service of a canary revision
LABEL_REVISION: Final = f"{GROUP}/revision"  # on the pods of a canary revision, always REVISION_CANARY
LABEL_WEIGHT: Final = f"{GROUP}/weight-percent"  # on the canary's Service and its slices: its share of the requests
REVISION_CANARY: Final = "canary"
ANNOTATION_TEMPLATE: Final = f"{GROUP}/template"  # on Deployments and canary pods: fingerprint of the pod template
ANNOTATION_REVISIONS: Final = f"{GROUP}/revisions"  # on the Deployment: its pod template and the last good one, as JSON
ANNOTATION_SHARED: Final = f"{GROUP}/replicas"  # on the Deployment beside a canary: "replicas of both/its own"
ANNOTATION_UPGRADE: Final = f"{GROUP}/upgrade"  # on an LLMDeployment, by the user: the upgrade that its pods may take
ANNOTATION_BUDGET: Final = f"{GROUP}/accelerator-budget"  # on a Namespace: "nvidia.com/gpu=8,amd.com/gpu=4"
ANNOTATION_DELETION_COST: Final = "controller.kubernetes.io/pod-deletion-cost"

# --- ports and paths of an engine pod --------------------------------------------------------------------------

DATA_PORT: Final = 8000
ADMIN_PORT: Final = 8001
GATEWAY_ADMIN_PORT: Final = 8081
DATA_PORT_NAME: Final = "http"
ADMIN_PORT_NAME: Final = "admin"

PATH_CHAT_COMPLETIONS: Final = "/v1/chat/completions"
PATH_COMPLETIONS: Final = "/v1/completions"
PATH_RESPONSES: Final = "/v1/responses"
PATH_MESSAGES: Final = "/v1/messages"  # Anthropic's
PATH_COUNT_TOKENS: Final = "/v1/messages/count_tokens"
PATHS_ANTHROPIC: Final = (PATH_MESSAGES, PATH_COUNT_TOKENS)
PATH_EMBEDDINGS: Final = "/v1/embeddings"
PATH_RERANK: Final = "/v1/rerank"
PATH_SCORE: Final = "/v1/score"
PATHS_RERANK: Final = (PATH_RERANK, "/rerank", "/v2/rerank")  # Jina's and Cohere's clients
PATHS_SCORE: Final = (PATH_SCORE, "/score")
PATH_TOKENIZE: Final = "/tokenize"
PATH_DETOKENIZE: Final = "/detokenize"
PATH_HEALTH: Final = "/health"
PATH_VERSION: Final = "/version"
PATH_MODELS: Final = "/v1/models"
PATH_OPENAPI: Final = "/openapi.json"
# What a gateway passes on to an engine.
POSTED_PATHS: Final = (
    PATH_CHAT_COMPLETIONS, PATH_COMPLETIONS, PATH_RESPONSES, PATH_MESSAGES, PATH_COUNT_TOKENS, PATH_EMBEDDINGS, *PATHS_RERANK, *PATHS_SCORE, PATH_TOKENIZE, PATH_DETOKENIZE,
)  # fmt: skip
READ_PATHS: Final = (PATH_MODELS, PATH_HEALTH, PATH_VERSION, PATH_OPENAPI)
PATH_LIVEZ: Final = "/livez"
PATH_READYZ: Final = "/readyz"
PATH_METRICS: Final = "/metrics"
PATH_LIMITS: Final = "/limits"
PATH_DRAIN: Final = "/drain"
PATH_STATE: Final = "/state"
PATH_LOAD: Final = "/load"
PATH_KV_EVENTS: Final = "/kv_events"  # server-sent events; the fields are in sluice_engine.server.api.kv_events
TYPE_EVENTS: Final = "text/event-stream"
PATH_HELD: Final = "/held"  # of a gateway in a cluster
PATH_RATES: Final = "/rates"  # of a gateway
PATH_PROMPTS: Final = "/prompts"  # of a gateway

HEADER_REQUEST_ID: Final = "x-request-id"
HEADER_REQUEST_ID_ANTHROPIC: Final = "request-id"  # the same beside it, on Anthropic's paths
HEADER_QUEUE_MS: Final = "x-sluice-queue-ms"
HEADER_CACHED_TOKENS: Final = "x-sluice-cached-tokens"
HEADER_PROMPT_TOKENS: Final = "x-sluice-prompt-tokens"
HEADER_OUTPUT_TOKENS: Final = "x-sluice-output-tokens"  # of a response that is not a stream
HEADER_RETRY_AFTER: Final = "Retry-After"
# From the official clients of OpenAI and Anthropic: how often they have sent the request before; and their default limit.
HEADER_RETRY_COUNT: Final = "x-stainless-retry-count"
CLIENT_RETRIES: Final = 2
ATTRIBUTION: Final = "x-anthropic-billing-header:"  # begins a block of Claude Code's system prompt that is no prompt
FIELD_RESUME: Final = "resume"  # of a body: the stream may go on at another replica, or does
SSE_TOKENS: Final = ": tokens "  # begins a comment in such a stream, with the token ids of the events before it
HEADER_PREFIX: Final = "x-sluice-"  # of request headers that only a gateway may set: it removes a client's
# From the gateway to an engine: the number of the attempt, if another replica received the request before; else absent.
HEADER_ATTEMPT: Final = "x-sluice-attempt"

MAX_PRIORITY: Final = 100  # of a request; the lowest is its negative
# From the gateway to an engine, beside the gateway's token: the request's tenant, "" without a key file.
HEADER_TENANT: Final = "x-sluice-tenant"
HEADER_PRIORITY: Final = "x-sluice-priority"  # the highest priority that the tenant's key allows
HEADER_GATEWAY_TOKEN: Final = "x-sluice-gateway-token"
# The token of reads of an admin port, for readers behind an API server's proxy, which removes `Authorization`.
HEADER_READ_TOKEN: Final = "x-sluice-read-token"

# From the gateway to an engine: milliseconds that the request has waited in the gateway, which count towards its targets.
HEADER_WAITED_MS: Final = "x-sluice-waited-ms"

# From the gateway to an engine: the name of the request's prompt in the engine's PATH_KV_EVENTS.
HEADER_PROMPT_TAG: Final = "x-sluice-prompt-tag"

# --- how the operator starts an engine -------------------------------------------------------------------------

SOURCE_TOKEN_MOUNT: Final = "/etc/sluice/source"
SOURCE_TOKEN_FILE: Final = "token"  # the entry of spec.model.tokenSecretRef
ENV_HUB_ENDPOINT: Final = "HF_ENDPOINT"  # read by huggingface_hub
ENV_HUB_TOKEN_PATH: Final = "HF_TOKEN_PATH"  # read by huggingface_hub
S3_CREDENTIALS_MOUNT: Final = "/etc/sluice/s3"  # the Secret of spec.model.credentialsSecretRef
S3_CREDENTIALS: Final = ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN")  # its entries
ENV_S3_CREDENTIALS: Final = "SLUICE_S3_CREDENTIALS"  # the folder of those entries
CACHE_MOUNT: Final = "/var/cache/sluice"  # the volume of spec.model.cache
NODE_CACHE: Final = "/var/lib/sluice/models"  # the same on a node
MODEL_MOUNT: Final = "/models"  # a pvc:// volume is mounted here, read-only
ADMIN_VOLUME: Final = "admin-token"  # of an engine pod
ADMIN_TOKEN_MOUNT: Final = "/etc/sluice/admin"
ADMIN_TOKEN_KEY: Final = "token"  # key in the Secret, and file name under ADMIN_TOKEN_MOUNT
READ_TOKEN_MOUNT: Final = "/etc/sluice/read"  # in engines that ask for a token of reads, and in gateways
READ_TOKEN_KEY: Final = "token"  # key in the Secret, and file name under READ_TOKEN_MOUNT
# Beside it in the release's own Secret: from it gateways derive the tokens of engines. One key a line, the newest first.
READ_KEY: Final = "key"
READ_VOLUME: Final = "read-token"  # of an engine pod
TARGETS_MOUNT: Final = "/etc/sluice/targets"  # a directory mount, so that the kubelet updates the file in running pods
TARGETS_FILE: Final = "targets.json"  # key in the ConfigMap, and file name under TARGETS_MOUNT
REVISION_FILE: Final = "revision.json"  # beside it: {"uri", "revision"} of a model that is fetched
API_KEYS_MOUNT: Final = "/etc/sluice/keys"  # the user's Secret as a directory, so that running pods see a new version
API_KEYS_FILE: Final = "keys.yaml"  # key in the Secret, and file name under API_KEYS_MOUNT
# Name of an entry in the key file, which is the tenant's name.
KEY_NAME: Final = re.compile(r"[A-Za-z0-9](?:[-A-Za-z0-9._@/]{0,126}[A-Za-z0-9])?", re.ASCII)
KEY_NAME_WORDS: Final = "1 to 128 letters, digits and - . _ @ /, with a letter or digit at both ends"
GATEWAY_TOKEN_MOUNT: Final = "/etc/sluice/gateway-token"  # in engines and gateways
GATEWAY_TOKEN_FILE: Final = "token"  # key in the Secret, and file name under GATEWAY_TOKEN_MOUNT
TLS_MOUNT: Final = "/etc/sluice/tls"
TLS_CERTIFICATE_FILE: Final = "tls.crt"  # keys of a Secret of type kubernetes.io/tls
TLS_KEY_FILE: Final = "tls.key"
# Each option of `sluice serve` may also be set as SLUICE_<OPTION>, e.g. --max-num-seqs as SLUICE_MAX_NUM_SEQS.
ENV_PREFIX: Final = "SLUICE_"
ENV_METRICS_COMPAT: Final = "SLUICE_METRICS_COMPAT"
ENV_PACE: Final = "SLUICE_PACE"
ENV_THREADS: Final = "SLUICE_THREADS"
TERMINATION_MESSAGE_PATH: Final = "/dev/termination-log"
# path; the engine writes {"reason", "message"} JSON to it
ENV_TERMINATION_MESSAGE: Final = "SLUICE_TERMINATION_MESSAGE"

# Reasons that an engine writes into its termination message and the operator copies into a condition.
REASON_MODEL_NOT_FOUND: Final = "ModelNotFound"
REASON_MODEL_INVALID: Final = "ModelInvalid"
REASON_UNSUPPORTED_ARCHITECTURE: Final = "UnsupportedArchitecture"
REASON_ACCELERATOR_NOT_FOUND: Final = "AcceleratorNotFound"
REASON_INSUFFICIENT_MEMORY: Final = "InsufficientMemory"
REASON_ENGINE_CRASHED: Final = "EngineCrashed"
REASON_PORT_TAKEN: Final = "PortTaken"
REASON_SECRET_NOT_FOUND: Final = "SecretNotFound"
REASON_SECRET_INVALID: Final = "SecretInvalid"
REASON_INVALID_OPTION: Final = "InvalidOption"
# Those of them by which an engine can never serve as it is configured, until its spec, its model or a Secret changes.
CONFIG_REASONS: Final = (
    REASON_MODEL_NOT_FOUND, REASON_MODEL_INVALID, REASON_UNSUPPORTED_ARCHITECTURE, REASON_ACCELERATOR_NOT_FOUND,
    REASON_INSUFFICIENT_MEMORY, REASON_SECRET_NOT_FOUND, REASON_SECRET_INVALID, REASON_INVALID_OPTION,
)  # fmt: skip
# Reasons why a starting engine cannot fetch its model; with `--fetch-errors retry` it stays up and reports them.
REASON_MODEL_ACCESS_DENIED: Final = "ModelAccessDenied"
REASON_REVISION_NOT_FOUND: Final = "RevisionNotFound"
REASON_RATE_LIMITED: Final = "RateLimited"
REASON_SOURCE_UNREACHABLE: Final = "SourceUnreachable"
REASON_DOWNLOAD_FAILED: Final = "DownloadFailed"
REASON_DOWNLOAD_STALLED: Final = "DownloadStalled"
REASON_DOWNLOAD_CORRUPT: Final = "DownloadCorrupt"
REASON_DISK_FULL: Final = "DiskFull"
FETCH_REASONS: Final = (
    REASON_MODEL_ACCESS_DENIED, REASON_REVISION_NOT_FOUND, REASON_SECRET_NOT_FOUND, REASON_RATE_LIMITED,
    REASON_SOURCE_UNREACHABLE, REASON_DOWNLOAD_FAILED, REASON_DOWNLOAD_STALLED, REASON_DOWNLOAD_CORRUPT,
    REASON_DISK_FULL,
)  # fmt: skip

DRAIN_GRACE_SECONDS: Final = 5.0  # after SIGTERM new requests are still served for this time: endpoints lag
CONNECTION_MAX_AGE_SECONDS: Final = 300.0  # jittered by ± 10 %

# --- metrics ---------------------------------------------------------------------------------------------------

PREFIX: Final = "sluice_"
SERIES_LABEL: Final = "llmdeployment"  # that a PodMonitor gives to the series of an engine, beside namespace and pod

REQUESTS_RUNNING: Final = "sluice_requests_running"
REQUESTS_WAITING: Final = "sluice_requests_waiting"
TOKENS_IN_FLIGHT: Final = "sluice_tokens_in_flight"
KV_OCCUPANCY_RATIO: Final = "sluice_kv_occupancy_ratio"  # held by running requests / total
KV_BLOCKS: Final = "sluice_kv_blocks"  # {state=held|cached|free}
# {kind=concurrency|concurrency_min|concurrency_max|queue|batched_tokens}.
ADMISSION_LIMIT: Final = "sluice_admission_limit"

TIME_TO_FIRST_TOKEN: Final = "sluice_time_to_first_token_seconds"
INTER_TOKEN_LATENCY: Final = "sluice_inter_token_latency_seconds"
TIME_PER_OUTPUT_TOKEN: Final = "sluice_time_per_output_token_seconds"  # mean inter-token latency of one request
REQUEST_DURATION: Final = "sluice_request_duration_seconds"
QUEUE_SECONDS: Final = "sluice_queue_seconds"
STEP_SECONDS: Final = "sluice_step_seconds"
PROMPT_TOKENS: Final = "sluice_prompt_tokens"  # histogram, per request
OUTPUT_TOKENS: Final = "sluice_output_tokens"  # histogram, per request

REQUESTS_ARRIVED: Final = "sluice_requests_arrived_total"
REQUESTS_OFFERED_AGAIN: Final = "sluice_requests_offered_again_total"
REQUESTS: Final = "sluice_requests_total"  # {outcome}
SLO_REQUESTS: Final = "sluice_slo_requests_total"  # {result}
SHADOW_REQUESTS: Final = "sluice_shadow_requests_total"  # requests that the shadow queues have seen
SHADOW_UNREACHABLE: Final = "sluice_shadow_unreachable_requests_total"  # of these, late even alone
SHADOW_LATE: Final = "sluice_shadow_late_requests_total"  # {load}: of the others, late had the load been so high
KV_BLOCK_SECONDS: Final = "sluice_kv_block_seconds_total"
BUSY_SECONDS: Final = "sluice_busy_seconds_total"
REJECTIONS: Final = "sluice_rejections_total"  # {reason}
PROMPT_TOKENS_TOTAL: Final = "sluice_prompt_tokens_total"
CACHED_PROMPT_TOKENS: Final = "sluice_cached_prompt_tokens_total"
GENERATED_TOKENS: Final = "sluice_generated_tokens_total"
PREEMPTIONS: Final = "sluice_preemptions_total"
SWAPS: Final = "sluice_swaps_total"  # preemptions that copied KV blocks to host memory
DRAFT_TOKENS: Final = "sluice_draft_tokens_total"  # proposed by speculation and verified
ACCEPTED_DRAFT_TOKENS: Final = "sluice_accepted_draft_tokens_total"
API_KEYS: Final = "sluice_api_keys"  # in force
# {reason}; no part of sluice_rejections_total: what a key may not do is no lack of capacity, and scales nothing
ACCESS_REFUSALS: Final = "sluice_access_refusals_total"
MOUNTED_FILE_FAULT: Final = "sluice_mounted_file_fault"  # {file}: 1 while the newest content cannot be used
MOUNTED_FILE_RELOADS: Final = "sluice_mounted_file_reloads_total"  # {file}
MOUNTED_FILE_FAILURES: Final = "sluice_mounted_file_reload_failures_total"  # {file}
METRICS_FAULTS: Final = "sluice_metrics_faults_total"  # exceptions while recording metrics

STEP_MODEL_SECONDS: Final = "sluice_step_model_seconds"  # {term}
STEP_MODEL_ERROR: Final = "sluice_step_model_error_ratio"
STEP_MODEL_STEPS: Final = "sluice_step_model_steps"  # steps behind the fit; a model with few is not used
MODEL_INFO: Final = "sluice_model_info"  # {version, dtype, model, revision}
CACHE_CONFIG_INFO: Final = "sluice_cache_config_info"  # {block_size, num_blocks}
LOAD_PHASE_SECONDS: Final = "sluice_load_phase_seconds"  # {phase=fetch|load|compile|warm}
PACED: Final = "sluice_paced"  # 1 while --pace makes steps follow a given time model

STEP_MODEL_TERMS: Final = ("base", "prefill_token", "prefill_context", "sequence", "kv_token")
KV_STATES: Final = ("held", "cached", "free")
LIMIT_KINDS: Final = ("concurrency", "concurrency_min", "concurrency_max", "queue", "batched_tokens")
OUTCOMES: Final = ("stop", "length", "abort", "error", "rejected")
SLO_RESULTS: Final = ("met", "missed_ttft", "missed_itl", "missed_both")
REJECTION_REASONS: Final = (
    "queue_full", "displaced", "slo_unreachable", "kv_full", "loading", "draining",
)  # fmt: skip
ACCESS_REFUSAL_REASONS: Final = ("unauthorized", "forbidden", "rate_limited")
FILE_API_KEYS: Final = "api_keys"
FILE_TLS_CERTIFICATE: Final = "tls_certificate"
MOUNTED_FILES: Final = (FILE_API_KEYS, FILE_TLS_CERTIFICATE)
LOAD_PHASES: Final = ("fetch", "load", "compile", "warm")

LATENCY_BUCKETS: Final = (
    0.001, 0.002, 0.003, 0.005, 0.0075, 0.01, 0.015, 0.02, 0.03, 0.04, 0.05, 0.075,
    0.1, 0.15, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 20.0, 40.0, 80.0,
)  # fmt: skip
TOKEN_BUCKETS: Final = tuple(float(m * 10**e) for e in range(6) for m in (1, 2, 5))

OPERATOR_RECONCILE: Final = "sluice_operator_reconcile_total"  # {result}
OPERATOR_RECONCILE_SECONDS: Final = "sluice_operator_reconcile_seconds"
OPERATOR_DECISIONS: Final = "sluice_operator_decisions_total"  # {kind, reason}
OPERATOR_SCRAPE_FAILURES: Final = "sluice_operator_scrape_failures_total"
OPERATOR_WATCH_LAST_EVENT: Final = "sluice_operator_watch_last_event_seconds"
OPERATOR_LEADER: Final = "sluice_operator_leader"
OPERATOR_RESOURCE_REPLICAS: Final = "sluice_operator_resource_replicas"  # {namespace, name, state}
OPERATOR_RESOURCE_CONDITION: Final = "sluice_operator_resource_condition"  # {namespace, name, type}
OPERATOR_RESOURCE_FAILURES: Final = "sluice_operator_resource_failures_total"  # {namespace, name}

GATEWAY_REQUESTS: Final = "sluice_gateway_requests_total"  # {status=2xx|4xx|5xx|disconnected}
GATEWAY_CHOSEN: Final = "sluice_gateway_chosen_total"  # {reason}
GATEWAY_RETRIES: Final = "sluice_gateway_retries_total"  # {reason}
GATEWAY_RETRIES_DENIED: Final = "sluice_gateway_retries_denied_total"  # by the retry budget
GATEWAY_BROKEN_STREAMS: Final = "sluice_gateway_broken_streams_total"
GATEWAY_RESUMED: Final = "sluice_gateway_resumed_streams_total"
GATEWAY_IN_FLIGHT: Final = "sluice_gateway_requests_in_flight"
GATEWAY_HELD: Final = "sluice_gateway_requests_held"
GATEWAY_REPLICAS: Final = "sluice_gateway_replicas"  # {state=ready|out}
GATEWAY_FOLLOWED: Final = "sluice_gateway_followed_replicas"
GATEWAY_FAULTS: Final = "sluice_gateway_replica_faults_total"  # {kind}: faults that took a replica out
# {reason}: answered by the gateway itself, before a replica.
GATEWAY_REJECTIONS: Final = "sluice_gateway_rejections_total"
GATEWAY_QUEUED: Final = "sluice_gateway_queue_requests"  # {priority=high|normal|low}: above 0, 0, below 0
GATEWAY_QUEUE_SECONDS: Final = "sluice_gateway_queue_seconds"
GATEWAY_PROMPT_TOKENS: Final = "sluice_gateway_prompt_tokens_total"
GATEWAY_CACHED_TOKENS: Final = "sluice_gateway_cached_prompt_tokens_total"
GATEWAY_EXPECTED_TOKENS: Final = "sluice_gateway_expected_cached_prompt_tokens_total"
GATEWAY_OVERHEAD: Final = "sluice_gateway_overhead_seconds"
# {revision, result}; of models with a canary.
GATEWAY_REVISION_REQUESTS: Final = "sluice_gateway_revision_requests_total"
GATEWAY_REVISIONS: Final = ("stable", REVISION_CANARY)
# missed: a stream whose first byte came after the target. error: status 500 or more, or an answer that broke off.
GATEWAY_REVISION_RESULTS: Final = ("met", "missed", "error")
GATEWAY_STATUSES: Final = ("2xx", "4xx", "5xx", "disconnected")
GATEWAY_CHOICES: Final = ("prefix", "session", "load", "retry")
GATEWAY_RETRY_REASONS: Final = ("refused", "rejected", "lost")
GATEWAY_REPLICA_STATES: Final = ("ready", "out")
GATEWAY_PRIORITIES: Final = ("high", "normal", "low")
GATEWAY_REJECTION_REASONS: Final = (
    "connections_full", "headers_overdue", "malformed", "draining", "in_flight_full", "bodies_full", "queue_full",
    "queue_bytes_full", "wait_too_long", "displaced", "no_replica", "cannot_start", "invalid_api_key", "model_not_allowed",
    "rate_limit_exceeded", "invalid",
)  # fmt: skip
GATEWAY_FAULT_KINDS: Final = ("refuses", "unreachable", "silent", "no_http", "wrong_load")

# --- GET /load ---------------------------------------------------------------------------------------------------

# {"model": served name, "phase": str, "ready": bool, "running": int, "waiting": int, "limit": int,
#  "ttft_target_seconds": float, "prefill_tokens": int,
#  "output_tokens": float, "kv_held_tokens": int, "kv_total_tokens": int,
#  "step_model": {term of STEP_MODEL_TERMS: seconds} or null}
# `limit`: requests that may run at once. `prefill_tokens`: prompt tokens of the requests without a first token, cached
# ones included. `output_tokens`: mean output of finished requests. `step_model` is null until it has seen enough steps.

# --- GET /held ---------------------------------------------------------------------------------------------------

# Answered only with the release's token of reads (sluice.auth.read_tokens); 401 while the gateway has no key of reads. One
# JSON object per line, sent at once and after each change: {"namespace/name" of an LLMDeployment: requests held
# until it has a replica}, without zeros. An unchanged line comes every HELD_HEARTBEAT_SECONDS.
HELD_HEARTBEAT_SECONDS: Final = 5.0

# --- GET /rates ------------------------------------------------------------------------------------------------

# What a gateway has used of the tenants' rates, for the other gateways; with the same token as /held:
# {"start": name of this process, "uses": [[tenant, "requests" or "tokens", sum since the start, left in the fleet]]}

# --- GET /prompts?after=START:NUMBER -----------------------------------------------------------------------------

# The prompts that a gateway has sent after that one, as hashes, for the other gateways; with the same token:
# {"start": name of this process, "last": number, "prompts": [[replica, tokens of a step, hashes of the steps in base64]]}

# --- PATCH /limits ---------------------------------------------------------------------------------------------

# Body: {"max_concurrent": {"min": int, "max": int}, "max_queue": int, "max_batched_tokens": int,
#        "kv_watermark": float, "itl_target_ms": float, "ttft_target_ms": float, "retry_after_seconds": float,
#        "ttl_seconds": float}
# Every field is optional; ttl_seconds is required if any other field is set. When it expires, the engine returns to the
# targets file, and to its options for fields that the file leaves out. retry_after_seconds is no limit: it is the time
# until the missing replica should serve (0: none is missing), which the engine returns with a rejection. Alone with its
# TTL it is accepted while an engine loads, and changes no bound.
LIMIT_FIELDS: Final = (
    "max_concurrent",
    "max_queue",
    "max_batched_tokens",
    "kv_watermark",
    "itl_target_ms",
    "ttft_target_ms",
    "retry_after_seconds",
    "ttl_seconds",
)

# --- the targets file ------------------------------------------------------------------------------------------

# {"max_concurrent": {"min": int, "max": int}, "itl_target_ms": float, "ttft_target_ms": float}
# SLO targets and admission range of the spec, with the field names and bounds of PATCH /limits. Every field is optional
# and defaults to the engine's option. The values hold until the file changes; a PATCH overrides them until it expires.
TARGET_FIELDS: Final = ("max_concurrent", "itl_target_ms", "ttft_target_ms")

# --- command line ----------------------------------------------------------------------------------------------

EXIT_OK: Final = 0
EXIT_FAILED: Final = 1
EXIT_USAGE: Final = 2  # bad input from the user: one sentence per fault on stderr
EXIT_ENGINE_DIED: Final = 3
EXIT_CONFIG: Final = 78  # the engine can never serve as configured (EX_CONFIG): model missing, no accelerator
EXIT_INTERRUPTED: Final = 130  # ended by Ctrl-C before it was done (128 + SIGINT), as in a shell
