"""Rules of the condition UpgradeAvailable: whether the operator would run the pods otherwise than they run."""

from typing import Final

from sluice import contract
from sluice_operator.api import Rollout
from sluice_operator.api.cron import zone_of
from sluice_operator.revisions.values import Upgrade, image_of
from sluice_operator.status.facts import Facts
from sluice_operator.status.rule import ConditionState, Rule

UPGRADING: Final = "Upgrading"


def _unknown(facts: Facts) -> ConditionState | None:
    if facts.spec is None:
        return ConditionState("Unknown", "InvalidSpec", "The spec is invalid. See the Ready condition for the cause.")
    return ConditionState("Unknown", "NotObserved", "No pod template was chosen.") if facts.choice is None else None


def _failed(facts: Facts) -> ConditionState | None:
    found = None if facts.choice is None else facts.choice.pending
    if found is None or found.failure is None:
        return None
    return ConditionState(
        "True",
        "UpgradeFailed",
        f"The pods with {_what(found)} did not start, so the operator went back to the earlier ones. "
        f"{found.failure.reason}: {found.failure.message} It tries again with a newer image or a changed spec.",
    )


def _available(facts: Facts) -> ConditionState | None:
    found = None if facts.choice is None else facts.choice.pending
    if found is None or facts.spec is None:
        return None
    reason = "NewEngineImage" if found.changes_image else "NewPodTemplate"
    name = (facts.fleet.deployment or {}).get("metadata", {}).get("name", "NAME")
    take = f"kubectl annotate llmd {name} {contract.ANNOTATION_UPGRADE}={found.template} --overwrite"
    return ConditionState(
        "True", reason, f"The operator has {_what(found)}. {_when(facts.spec.rollout)} To take it now: {take}"
    )


def _upgrading(facts: Facts) -> ConditionState | None:
    applied = None if facts.choice is None else facts.choice.record.applied
    if applied is None or not applied.is_upgrade or applied.ready or not facts.fleet.pods:
        return None
    return ConditionState("False", UPGRADING, f"The pods move to the engine image {image_of(applied.pod)}.")


def _key(facts: Facts) -> ConditionState | None:
    choice = facts.choice
    if choice is not None and choice.record.is_rekeyed and facts.fleet.pods:
        return ConditionState("False", UPGRADING, "The pods move to the token of the operator's new key.")
    if choice is None or not choice.awaits_key:
        return None
    return ConditionState(
        "True",
        "NewOperatorKey",
        "The operator has a new key, and the pods have a token of the one before. They are replaced without a failed "
        "request once all of them are ready and fewer fleets move than the chart's upgrades.maxConcurrent.",
    )


def _none(facts: Facts) -> ConditionState:
    if facts.is_rolled_back:
        return ConditionState("False", "RolledBack", "The pods are of an earlier spec. See the Ready condition.")
    return ConditionState("False", "UpToDate", "The pods run as this operator renders them.")


def _what(upgrade: Upgrade) -> str:
    return f"the engine image {upgrade.image}" if upgrade.changes_image else "another pod template for the same spec"


def _when(rollout: Rollout) -> str:
    match rollout.upgrade_policy:
        case "OnChange":
            return "The pods take it with the next change of spec.model, spec.engine, spec.auth or drainSeconds."
        case "Manual":
            return "The pods keep theirs, because spec.rollout.upgradePolicy is Manual."
    window = rollout.upgrade_window
    if window is None or zone_of(window.timezone) is None:
        return "The window never opens: spec.rollout.upgradeWindow.timezone must be one such as UTC or Europe/Berlin."
    return f"The pods take it when the window {window.cron} ({window.timezone}) is open and no other fleet moves."


UPGRADE_AVAILABLE: Final[tuple[Rule, ...]] = (_unknown, _failed, _available, _upgrading, _key, _none)
