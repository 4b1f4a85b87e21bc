"""The values that the scheduler's hot loops build have exactly the fields of their types."""

from typing import NamedTuple

import pytest

from sluice_engine.scheduler import planner, settle
from tests.engine.scheduler.test_scheduler import request, scheduler, step


class Wider(NamedTuple):
    """A row or outcome after a field was added that the hot loops do not give."""

    a: object
    b: object
    c: object
    d: object
    e: object
    f: object
    g: object
    h: object
    i: object
    added: object


@pytest.mark.parametrize(("module", "name"), [(planner, "Row"), (settle, "Outcome")])
def test_a_value_with_a_field_too_few_is_an_error_in_the_hot_loops_too(
    module: object, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = scheduler()
    engine.submit(request("a", 4))
    step(engine)  # the prompt; from here on the request decodes
    step(engine)
    monkeypatch.setattr(module, name, Wider)
    with pytest.raises(TypeError, match="missing"):
        step(engine)
