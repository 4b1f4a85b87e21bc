"""What a driver reported: one outcome per feature, read from its JSON lines."""

import json
from dataclasses import asdict, dataclass
from typing import Any

from tests.clients.catalogue import FEATURES


@dataclass(frozen=True, slots=True)
class Outcome:
    """`ok` is None where the client has no such feature; `detail` says why."""

    feature: str
    ok: bool | None
    detail: str

    @property
    def mark(self) -> str:
        """The table's cell."""
        return {True: "✓", False: "✗", None: "–"}[self.ok]


@dataclass(frozen=True, slots=True)
class Result:
    """All outcomes of one client, and the code of the engine that it spoke to."""

    client: str
    version: str
    code: str
    commit: str
    outcomes: tuple[Outcome, ...]

    @property
    def failed(self) -> tuple[Outcome, ...]:
        """The features that do not work."""
        return tuple(outcome for outcome in self.outcomes if outcome.ok is False)

    def as_json(self) -> dict[str, Any]:
        """Returns plain data."""
        return asdict(self)

    @classmethod
    def of_json(cls, data: dict[str, Any]) -> "Result":
        """The inverse of `as_json`."""
        return cls(**data | {"outcomes": tuple(Outcome(**outcome) for outcome in data["outcomes"])})


def read(lines: list[str], end: str) -> tuple[Outcome, ...]:
    """Returns the outcomes of a driver's lines; other lines are the client's own output.

    A planned feature without an outcome failed: `end` says how the driver ended. A driver that planned none failed too.
    """
    planned: list[str] = []
    found: dict[str, Outcome] = {}
    for line in lines:
        try:
            data = json.loads(line)
        except json.JSONDecodeError:
            continue
        if isinstance(data, dict) and "planned" in data:
            planned = data["planned"]
        elif isinstance(data, dict) and "feature" in data:
            found[data["feature"]] = Outcome(data["feature"], data["ok"], data["detail"])
    if unknown := sorted({*planned, *found} - set(FEATURES)):
        raise ValueError(f"the driver has cases for {unknown}, which catalogue.py does not name")
    for feature in planned or ["text"]:
        found.setdefault(feature, Outcome(feature, False, end))
    return tuple(found[feature] for feature in FEATURES if feature in found)
