"""The operator's sentences in words that fit this machine, where replicas are processes and no kubectl exists."""

import re
from typing import Final

from sluice import contract

_WORDS: Final = (
    (re.compile(r"\bpod\b"), "replica"),
    (re.compile(r"\bPod\b"), "Replica"),
    (re.compile(r"\bpods\b"), "replicas"),
    (re.compile(r"\bPods\b"), "Replicas"),
    (
        re.compile(r"Read the log with kubectl logs --previous; the kubelet restarts the container\."),
        "It is started again; its log is in the folder of --state-dir.",
    ),
)
_STEPS: Final = {
    contract.REASON_ACCELERATOR_NOT_FOUND: "To serve on the CPU, set spec.engine.accelerator.count to 0.",
    contract.REASON_MODEL_NOT_FOUND: "Correct spec.model.uri.",
    contract.REASON_REVISION_NOT_FOUND: "Correct spec.model.uri.",
    contract.REASON_MODEL_ACCESS_DENIED: "Then start `sluice up` again.",
    contract.REASON_MODEL_INVALID: "Replace the model's files, or correct spec.model.uri.",
    contract.REASON_UNSUPPORTED_ARCHITECTURE: "Set spec.model.uri to another model.",
    contract.REASON_INSUFFICIENT_MEMORY: (
        "In the file, these are spec.engine.kvCache, spec.model.maxModelLength and spec.scaling.maxReplicas."
    ),
    contract.REASON_INVALID_OPTION: "Correct the field of spec.model or spec.engine that gives this option.",
}
# Reasons that no restart solves: the engine ends with them before it serves, and the file or the machine must change.
PERMANENT: Final = frozenset(_STEPS)


def local_words(text: str) -> str:
    """The sentence about replicas instead of pods."""
    for pattern, word in _WORDS:
        text = pattern.sub(word, text)
    return text


def next_step(reason: str) -> str:
    """What to change in the file of `sluice up` after a fault of this reason; empty for a fault that may pass."""
    return _STEPS.get(reason, "")
