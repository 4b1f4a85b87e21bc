"""The metrics of an engine, on its admin port."""

from typing import Final

from sluice import contract
from sluice.metrics.definition import Label, counter, gauge, histogram
from sluice_perfmodel.shadow_queues import LOAD_NAMES

ENGINE: Final = (
    gauge(contract.REQUESTS_RUNNING, "Requests that hold KV blocks."),
    gauge(contract.REQUESTS_WAITING, "Requests queued in the engine."),
    gauge(contract.TOKENS_IN_FLIGHT, "Known tokens of running and waiting requests."),
    gauge(contract.KV_OCCUPANCY_RATIO, "KV blocks held by running requests over all."),
    gauge(contract.KV_BLOCKS, "KV blocks by state.", Label("state", contract.KV_STATES)),
    gauge(contract.ADMISSION_LIMIT, "Limits in force.", Label("kind", contract.LIMIT_KINDS)),
    gauge(
        contract.STEP_MODEL_SECONDS,
        "Fitted step-time model, seconds per unit, corrected where token times exceed it for minutes.",
        Label("term", contract.STEP_MODEL_TERMS),
    ),
    gauge(contract.STEP_MODEL_ERROR, "Mean absolute relative error of the fit."),
    gauge(contract.STEP_MODEL_STEPS, "Steps used by the fit."),
    gauge(contract.LOAD_PHASE_SECONDS, "Seconds the start spent in each phase.", Label("phase", contract.LOAD_PHASES)),
    gauge(contract.PACED, "1 while --pace holds steps to a given time model."),
    gauge(contract.MODEL_INFO, "What is served.", Label("version"), Label("dtype"), Label("model"), Label("revision")),
    gauge(contract.CACHE_CONFIG_INFO, "The KV pool.", Label("block_size"), Label("num_blocks")),
    histogram(contract.TIME_TO_FIRST_TOKEN, "Arrival to first token.", contract.LATENCY_BUCKETS),
    histogram(contract.INTER_TOKEN_LATENCY, "Between two tokens of one request.", contract.LATENCY_BUCKETS),
    histogram(contract.TIME_PER_OUTPUT_TOKEN, "One request's mean inter-token time.", contract.LATENCY_BUCKETS),
    histogram(contract.REQUEST_DURATION, "Arrival to last token.", contract.LATENCY_BUCKETS),
    histogram(contract.QUEUE_SECONDS, "Arrival to first scheduled.", contract.LATENCY_BUCKETS),
    histogram(contract.STEP_SECONDS, "One engine step.", contract.LATENCY_BUCKETS),
    histogram(contract.PROMPT_TOKENS, "Prompt tokens per request.", contract.TOKEN_BUCKETS),
    histogram(contract.OUTPUT_TOKENS, "Output tokens per request.", contract.TOKEN_BUCKETS),
    counter(contract.REQUESTS, "Requests at their end.", Label("outcome", contract.OUTCOMES)),
    counter(contract.SLO_REQUESTS, "Completed requests against the SLO.", Label("result", contract.SLO_RESULTS)),
    counter(contract.REJECTIONS, "Rejected requests.", Label("reason", contract.REJECTION_REASONS)),
    counter(
        contract.SHADOW_LATE,
        "Of the others, late had the load been this multiple of itself.",
        Label("load", LOAD_NAMES),
    ),
    counter(
        contract.REQUESTS_ARRIVED, "Valid requests at their first arrival at any replica, including rejected ones."
    ),
    counter(
        contract.REQUESTS_OFFERED_AGAIN,
        "Valid requests that another replica rejected before; rejections minus these are lost requests.",
    ),
    counter(contract.SHADOW_REQUESTS, "Requests that the shadow queues have seen."),
    counter(contract.SHADOW_UNREACHABLE, "Of these, late even alone."),
    counter(contract.KV_BLOCK_SECONDS, "Held KV blocks integrated over time."),
    counter(contract.BUSY_SECONDS, "Seconds spent in steps."),
    counter(contract.PROMPT_TOKENS_TOTAL, "Prompt tokens of scheduled requests."),
    counter(contract.CACHED_PROMPT_TOKENS, "Prompt tokens found in the prefix cache."),
    counter(contract.GENERATED_TOKENS, "Generated tokens."),
    counter(contract.DRAFT_TOKENS, "Draft tokens of speculation that were verified."),
    counter(contract.ACCEPTED_DRAFT_TOKENS, "Draft tokens that were accepted."),
    counter(contract.PREEMPTIONS, "Preempted requests."),
    counter(contract.SWAPS, "Preempted requests that were copied to host memory."),
    counter(contract.METRICS_FAULTS, "Exceptions in recording metrics; what they record is lost."),
    gauge(contract.API_KEYS, "API keys in force."),
    counter(
        contract.ACCESS_REFUSALS,
        "Requests refused with 401, 403 or 429.",
        Label("reason", contract.ACCESS_REFUSAL_REASONS),
    ),
    gauge(
        contract.MOUNTED_FILE_FAULT,
        "1 while the file's newest content cannot be used and the last valid one applies.",
        Label("file", contract.MOUNTED_FILES),
    ),
    counter(contract.MOUNTED_FILE_RELOADS, "Reloads of a changed file.", Label("file", contract.MOUNTED_FILES)),
    counter(
        contract.MOUNTED_FILE_FAILURES,
        "Contents of a changed file that were not usable.",
        Label("file", contract.MOUNTED_FILES),
    ),
)
