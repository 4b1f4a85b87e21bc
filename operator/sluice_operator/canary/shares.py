"""How replicas and requests are divided between the stable revision and the canary."""

from dataclasses import dataclass
from math import ceil

from sluice_operator.api import Canary
from sluice_operator.canary.values import CanaryState, Trial


@dataclass(frozen=True, slots=True)
class Shares:
    """Pods of each revision, and the canary's share of the requests in percent."""

    stable: int
    canary: int
    weight_percent: int


def shares(settings: Canary, state: CanaryState, trial: Trial, *, surges: bool) -> Shares:
    """Return the division of `trial.replicas`.

    surges: canary pods start before stable ones go. Otherwise stable ones go first, where no accelerator is spare. One
    stable pod always stays.
    """
    if not state.has_pods:
        return Shares(trial.replicas, 0, 0)
    wanted = pods_of_step(settings, state.step, trial.replicas)
    if state.phase == "Promoting":
        return Shares(trial.replicas, wanted, settings.weight_percent * settings.steps)
    step = state.step if state.since is not None else state.step - 1  # its pods must be ready before the weight rises
    given = min(wanted, trial.ready) if surges else wanted
    stable = max(min(1, trial.replicas), trial.replicas - given)
    return Shares(stable, wanted, settings.weight_percent * step)


def pods_of_step(settings: Canary, step: int, replicas: int) -> int:
    """Return the canary's pods: its share of the replicas, rounded up, so that its pods are not the more loaded ones."""
    return ceil(replicas * settings.weight_percent * step / 100)
