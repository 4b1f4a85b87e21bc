"""The quantiser of the tests: compensating errors costs a layer's outputs less than rounding each weight alone."""

import numpy as np
import torch

from tests.engine.quantised.compensating import Inputs, quantised_by
from tests.engine.quantised.packer import Format, Rounded, quantised

FORM = Format("gptq", 4, 32)


def correlated(tokens: int, inputs: int, seed: int) -> torch.Tensor:
    """Inputs that depend on each other, some of which are much larger."""
    generator = torch.Generator().manual_seed(seed)
    mix = torch.randn(inputs, inputs, generator=torch.Generator().manual_seed(9)) / inputs**0.5
    return torch.randn(tokens, inputs, generator=generator) @ mix * torch.linspace(0.1, 3.0, inputs)


def error(weight: torch.Tensor, rounded: Rounded, x: torch.Tensor) -> float:
    """Squared error of the outputs over their square."""
    change = torch.from_numpy(rounded.dense().T) - weight
    return float((x @ change.T).square().sum() / (x @ weight.T).square().sum())


def test_compensated_errors_cost_less_than_half_on_other_inputs() -> None:
    weight = torch.randn(48, 128, generator=torch.Generator().manual_seed(1)) * 0.05
    with torch.inference_mode():
        rounded = quantised_by(weight, Inputs.of(correlated(2000, 128, 2)), FORM)
    other = correlated(500, 128, 3)
    assert error(weight, rounded, other) < 0.5 * error(weight, quantised(weight.numpy().T, FORM), other)
    assert 0 <= rounded.values.min() < rounded.values.max() <= 15
    assert rounded.zeros.min() >= 1  # GPTQ's first format stores zero - 1
    assert np.array_equal(rounded.group_of, np.arange(128) // 32)


def test_the_factor_is_the_upper_cholesky_factor_of_the_inverse() -> None:
    x = correlated(400, 96, 4).double()
    inputs = Inputs.of(x.float())
    hessian = x.T @ x
    hessian += 0.05 * hessian.diagonal().mean() * torch.eye(96, dtype=torch.float64)
    inverse = torch.linalg.inv(hessian[inputs.order][:, inputs.order])
    want = torch.linalg.cholesky(inverse, upper=True)
    torch.testing.assert_close(inputs.factor.double(), want, rtol=1e-3, atol=1e-4)
    importance = inputs.importance[inputs.order]
    assert bool((importance[:-1] >= importance[1:]).all())
