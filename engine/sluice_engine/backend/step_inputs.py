"""What a step's rows are converted to: the inputs of the model and of the sampler."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from sluice_engine.model.batch import Batch
from sluice_engine.sampling.draft_verify import Drafts
from sluice_engine.sampling.logprobs import PromptTargets
from sluice_engine.scheduler import Row

Ints = NDArray[np.int64]


class LogitsRows(NamedTuple):
    """The logits rows of a step: the request that samples from each row, and the sampler's inputs. Arrays are [L]."""

    at: NDArray[np.int64]  # flat index of the token that produces the logits
    request_ids: list[str]
    slots: Ints
    positions: Ints  # of the token to sample
    samples: NDArray[np.bool_]
    drafts: Drafts | None = None  # None: no row has drafts


class StepInputs(NamedTuple):
    """The inputs of the model and of the sampler."""

    batch: Batch
    logits_rows: LogitsRows
    pending: Ints  # flat positions of tokens that the preceding step samples
    pending_slots: Ints  # slots of the requests that own these tokens
    ids: tuple[int, int]  # the least and the largest token id, of those that are known
    targets: Sequence[PromptTargets] = ()  # their rows of logits follow `logits_rows`, in order


@dataclass(frozen=True, slots=True)
class GatheredRows:
    """Rows that attend together, with a copy of their block tables [layer groups, R, W] as of planning time. `inputs`:
    those of these rows alone, if they are written already.
    """

    rows: Sequence[Row]
    slots: Ints
    starts: Ints
    counts: Ints
    tables: Ints
    inputs: StepInputs | None = None

    def subset(self, rows: Sequence[Row]) -> "GatheredRows | None":
        """The subset for these rows. A row may differ from the original of the same slot (shorter or without
        drafts).
        """
        kept = {row.slot: row for row in rows}
        places = [place for place, row in enumerate(self.rows) if row.slot in kept]
        if not places:
            return None
        return GatheredRows(
            [kept[self.rows[place].slot] for place in places],
            self.slots[places],
            self.starts[places],
            np.array([len(kept[self.rows[place].slot].tokens) for place in places], dtype=np.int64),
            self.tables[:, places],
        )
