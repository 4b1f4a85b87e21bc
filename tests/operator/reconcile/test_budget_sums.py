"""The sums of a budget that are kept over passes are those of all claims."""

from dataclasses import replace

from hypothesis import given, settings
from hypothesis import strategies as st

from sluice_operator.autoscaler.budget.values import Want
from sluice_operator.cluster.client import Key
from sluice_operator.reconcile.accelerator_budget import AcceleratorBudgets, Claim, _Reading
from tests.operator.fake_cluster import KEY
from tests.operator.reconcile.test_accelerator_budget import BUDGET, GPU, NAMES, NOW, Deployment


@given(st.data())
@settings(max_examples=60, deadline=None)
def test_the_sums_that_are_kept_are_those_of_all_claims(data: st.DataObject) -> None:
    budgets = AcceleratorBudgets()
    budgets._readings[KEY.namespace] = _Reading(NOW, {GPU: BUDGET})
    wanted = st.none() | st.builds(Want, st.just(""), st.just(1), st.just(0), st.just(0), st.integers(0, 4), st.just(0))
    claims: dict[Key, Claim] = {}
    for _ in range(data.draw(st.integers(1, 12))):
        key = Key(KEY.namespace, data.draw(st.sampled_from(NAMES)))
        want, resource_name = data.draw(wanted), data.draw(st.sampled_from((GPU, "amd.com/gpu")))
        held = {name: data.draw(st.integers(0, 4)) for name in (GPU, "amd.com/gpu")}
        claim = Claim(held, resource_name, None if want is None else replace(want, name=key.name))
        is_deleted = data.draw(st.booleans())
        budgets._record(key, None if is_deleted else claim)
        claims = {other: known for other, known in claims.items() if other != key}
        claims |= {} if is_deleted else {key: claim}
        target = Deployment("a", 0).target()
        found = budgets.budget(target, NOW)
        assert found is not None
        others = {other.name: known for other, known in claims.items() if other != target.key}
        scaled = {name: known.want for name, known in others.items() if known.want and known.resource == GPU}
        assert {each.name: each for each in found.others} == scaled
        assert found.held == sum(known.held[GPU] for known in others.values())
        assert found.fixed == sum(known.held[GPU] for name, known in others.items() if name not in scaled)
        assert found.own == (claims[target.key].held[GPU] if target.key in claims else 0)
