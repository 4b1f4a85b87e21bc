"""Texts to vectors, offline: handed to the engine in this process, stepped until each has its row of numbers."""

import struct
from collections.abc import Sequence

from sluice_engine import ipc
from sluice_engine.loop import EngineLoop
from sluice_engine.offline import step, submitted
from sluice_engine.progress import Progress


def compute(engine: EngineLoop, messages: Sequence[ipc.Encode], progress: bool | None) -> list[tuple[float, ...]]:
    """The rows of these texts, in order. Whatever stops it leaves nothing behind in the engine.

    Raises ValueError for a text that cannot be computed, RuntimeError where the model fails on one.
    """
    model = engine.model
    for index, message in enumerate(messages):
        count = len(message.token_ids)
        if not 1 <= count <= model.max_model_length:
            raise ValueError(
                f"text {index} has {count} tokens; this model reads a text whole and has {model.max_model_length} "
                "positions: shorten or split it"
            )
        if not 0 <= min(message.token_ids) <= max(message.token_ids) < model.vocab_size:
            raise ValueError(f"text {index} has a token id outside the vocabulary of {model.vocab_size}")
    waiting = {message.request_id for message in messages}
    rows: dict[str, tuple[float, ...]] = {}
    tokens = 0
    with submitted(engine, messages, waiting), Progress(len(messages), progress) as bar:
        while waiting:
            report = step(engine, f"{len(waiting)} texts are not computed")
            for delta in report.deltas:
                if delta.request_id not in waiting:  # of a call that was interrupted
                    continue
                waiting.discard(delta.request_id)
                if delta.error is not None:
                    raise RuntimeError(f"a text failed: {delta.error}")
                rows[delta.request_id] = struct.unpack(f"<{len(delta.vector) // 4}f", delta.vector)
            tokens += report.prompt_tokens
            bar.update(len(rows), tokens)
    return [rows[message.request_id] for message in messages]
