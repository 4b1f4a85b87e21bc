"""Packed objects are read back as they were, whatever the first object of their kind was."""

from typing import Any

import orjson
from hypothesis import given
from hypothesis import strategies as st

from sluice_operator.cluster.cache.packing import Packing
from tests.operator.fake_cluster import pod

SCALARS = (
    st.none()
    | st.booleans()
    | st.integers(-(2**53), 2**53)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=20)
)
VALUES = st.recursive(
    SCALARS, lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4)
)
OBJECTS = st.dictionaries(st.text(max_size=8), VALUES, max_size=5)


@given(st.lists(OBJECTS, min_size=1, max_size=6))
def test_objects_are_read_as_they_were_packed(things: list[dict[str, Any]]) -> None:
    packing = Packing()
    packed = [packing.pack(each) for each in things]
    assert [packing.unpack(each) for each in packed] == things


def test_each_reader_has_an_object_of_its_own() -> None:
    packing = Packing()
    packed = packing.pack({"spec": {"replicas": 1}})
    packing.unpack(packed)["spec"]["replicas"] = 2
    assert packing.unpack(packed) == {"spec": {"replicas": 1}}


def test_pods_of_one_fleet_take_a_quarter_of_their_text() -> None:
    packing = Packing()
    packing.pack(pod("first"))
    second = pod("second")
    assert len(packing.pack(second)) < len(orjson.dumps(second)) / 4
