"""The check of the model before the Deployment is written."""

from dataclasses import replace

from sluice import contract
from sluice.models.uri import HubModel, parse_uri
from sluice_operator.api import Template
from sluice_operator.model_check import NotChecked, Verdict, judge
from sluice_operator.reconcile.context import Context, Target
from sluice_operator.status.served_model import recorded_revision


async def check_model(target: Target, context: Context, *, is_written: bool) -> Verdict:
    """Judge the model of the spec. A model that cannot be read is not checked.

    is_written: the Deployment has the pods of this spec already. They then show themselves whether the model fits: no
    change of the check stops what serves, and nothing is read.
    """
    if context.models is None:
        return Verdict()
    spec = target.resource.spec
    uri = parse_uri(spec.model.uri)
    if isinstance(uri, HubModel):
        other_hub = _other_hub(spec.engine.template, context.settings.hub_endpoint)
        if other_hub:
            return judge(spec, NotChecked(other_hub))
        revision = recorded_revision(spec, target.document.get("status") or {})
        uri = replace(uri, revision=revision or uri.revision)
    if not is_written:
        return judge(spec, await context.models.look_up(uri))
    known = context.models.known(uri)
    return Verdict() if known is None else replace(judge(spec, known), problem=None)


def _other_hub(template: Template, asked: str) -> str:
    """Why the hub of the pods may not be `asked`, which the operator asks; "" where it is that one."""
    given = next((each for each in template.env if each.name == contract.ENV_HUB_ENDPOINT), None)
    if given is None:
        may_be_set = any(contract.ENV_HUB_ENDPOINT.startswith(each.prefix) for each in template.env_from)
        return f"the pods read {contract.ENV_HUB_ENDPOINT} from a Secret or a ConfigMap" if may_be_set else ""
    if given.value_from is not None:
        return f"the pods read {contract.ENV_HUB_ENDPOINT} from a Secret or a ConfigMap"
    if given.value is not None and given.value.rstrip("/") != asked.rstrip("/"):
        return f"the pods use the hub {given.value}, which the operator does not ask"
    return ""
