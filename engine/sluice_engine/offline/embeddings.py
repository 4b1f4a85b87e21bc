"""Offline embeddings and scores: submit texts to the engine in this process and step until each has its vector."""

import struct
from collections.abc import Sequence

from sluice_engine import messages
from sluice_engine.core.engine import EngineLoop
from sluice_engine.offline.driver import step, submitted
from sluice_engine.offline.progress import Progress


def encode_texts(
    engine: EngineLoop, requests: Sequence[messages.Encode], progress: bool | None
) -> list[tuple[float, ...]]:
    """The vectors of these texts, in order. On any error no request remains in the engine.

    Raises ValueError for a text that cannot be computed, and RuntimeError if the model fails on one.
    """
    model = engine.model
    for index, message in enumerate(requests):
        count = len(message.token_ids)
        if not 1 <= count <= model.max_model_length:
            raise ValueError(
                f"text {index} has {count} tokens; this model encodes a text in one pass and has {model.max_model_length} "
                "positions: shorten or split it"
            )
        if not 0 <= min(message.token_ids) <= max(message.token_ids) < model.vocab_size:
            raise ValueError(f"text {index} has a token id outside the vocabulary of {model.vocab_size}")
    waiting = {message.request_id for message in requests}
    rows: dict[str, tuple[float, ...]] = {}
    tokens = 0
    with submitted(engine, requests, waiting), Progress(len(requests), progress) as bar:
        while waiting:
            report = step(engine, f"{len(waiting)} texts are not computed")
            for delta in report.deltas:
                if delta.request_id not in waiting:  # from an interrupted call
                    continue
                waiting.discard(delta.request_id)
                if delta.error is not None:
                    raise RuntimeError(f"a text failed: {delta.error}")
                rows[delta.request_id] = struct.unpack(f"<{len(delta.vector) // 4}f", delta.vector)
            tokens += report.prompt_tokens
            bar.update(len(rows), tokens)
    return [rows[message.request_id] for message in requests]
