"""The check of the model before the Deployment is written."""

from dataclasses import replace

from sluice import contract
from sluice.models.uri import HubModel, parse_uri
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
        given = next((each for each in spec.engine.template.env if each.name == contract.ENV_HUB_ENDPOINT), None)
        sets = any(contract.ENV_HUB_ENDPOINT.startswith(each.prefix) for each in spec.engine.template.env_from)
        if (given is None and sets) or (given is not None and given.value_from is not None):
            return judge(spec, NotChecked(f"the pods read {contract.ENV_HUB_ENDPOINT} from a Secret or a ConfigMap"))
        named = None if given is None else given.value
        if named is not None and named.rstrip("/") != context.settings.hub_endpoint.rstrip("/"):
            return judge(spec, NotChecked(f"the pods use the hub {named}, which the operator does not ask"))
        revision = recorded_revision(spec, target.document.get("status") or {})
        uri = replace(uri, revision=revision or uri.revision)
    if not is_written:
        return judge(spec, await context.models.look_up(uri))
    known = context.models.known(uri)
    return Verdict() if known is None else replace(judge(spec, known), problem=None)
