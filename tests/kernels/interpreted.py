"""What all property files share: the device, the number of examples, and which cases an interpreter can afford."""

from collections.abc import Iterable, Mapping

import torch
from bench.interpreter import correct_interpreter
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
DTYPES = st.sampled_from([torch.float32, torch.float16, torch.bfloat16])

few = settings(max_examples=25, deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow])

torch.set_num_threads(1)
if DEVICE == "cpu":
    correct_interpreter()


def chosen(named: Mapping[str, object], large: Mapping[str, object]) -> Iterable[str]:
    """The names of the cases to run: the large ones only compiled, because they are too much for an interpreter."""
    return [*named, *large] if DEVICE == "cuda" else [*named]
