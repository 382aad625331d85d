"""Programs that use torch.distributions: its checks of data are branches of the graph, like those of the program."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
from torch import distributions, nn

from graphwright import GuardError, load, save, trace


def normal(x: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
    return -distributions.Normal(x, torch.ones_like(x), validate_args=True).log_prob(target)


def categorical(x: torch.Tensor, target: torch.Tensor) -> Any:
    chosen = distributions.Categorical(logits=x[:, None])
    return chosen.log_prob(target * 0), chosen.entropy(), chosen.sample((2,))


def scaled(x: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
    base = distributions.StudentT(x.abs() + 1)
    return distributions.TransformedDistribution(base, [distributions.AffineTransform(x, 2.0)]).log_prob(target)


def divergence(x: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
    return distributions.kl_divergence(distributions.Normal(x, target.exp()), distributions.Normal(0.0, 1.0))


@pytest.mark.parametrize("program", [normal, categorical, scaled, divergence])
def test_distributions_give_what_they_give_in_eager(program: Any) -> None:
    gm = trace(program, (torch.rand(3), torch.rand(3)))
    assert not gm.report.forks or program is scaled
    for size in (3, 5):
        inputs = torch.randn(size), torch.randn(size)
        torch.manual_seed(0)
        want = program(*inputs)
        torch.manual_seed(0)
        torch.testing.assert_close(gm(*inputs), want, rtol=0, atol=0)


def test_the_checks_of_distributions_stay() -> None:
    gm = trace(normal, (torch.rand(3), torch.rand(3)))
    bad = torch.tensor([0.0, torch.nan])
    for inputs in ((bad, torch.ones(2)), (torch.ones(2), bad)):
        with pytest.raises(ValueError, match="Expected") as mine:
            gm(*inputs)
        with pytest.raises(ValueError, match="Expected") as eager:
            normal(*inputs)
        assert str(mine.value).replace("[3]", "[2]") == str(eager.value)


def test_the_class_of_a_value_is_that_of_eager() -> None:
    def program(x: torch.Tensor, n: int) -> Any:
        if x.sum() > 0:  # a function that asks is converted
            x = x + 1
        return x, type(x).__name__, type(n) is int, type(x) is torch.Tensor

    gm = trace(program, (torch.ones(2), 3))
    assert gm(torch.ones(3), 4)[1:] == ("Tensor", True, True)


def test_the_shape_that_shapes_broadcast_to_is_a_node() -> None:
    def program(x: torch.Tensor, y: torch.Tensor) -> Any:
        if x.sum() > 0:
            x = x + 1
        shape = torch.broadcast_shapes(x.shape, y.shape)
        return x.expand(shape) + y, shape

    gm = trace(program, (torch.ones(2, 3), torch.ones(3)))
    assert not gm.report.forks
    for inputs in ((torch.ones(5, 1), torch.ones(4)), (-torch.ones(2, 3), torch.ones(1))):
        value, shape = gm(*inputs)
        assert torch.equal(value, program(*inputs)[0]) and shape == program(*inputs)[1]


def test_their_checks_are_saved_under_public_names(tmp_path: Any) -> None:
    gm = trace(normal, (torch.rand(3), torch.rand(3)))
    assert not any("_is_all_true" in str(node.target) for node in gm.graph.all_nodes())
    save(gm, tmp_path / "normal.gw")
    inputs = torch.randn(4), torch.randn(4)
    assert torch.equal(load(tmp_path / "normal.gw", allow=["torch.distributions"])(*inputs), normal(*inputs))


def test_sizes_of_transformed_distributions_stay_sizes() -> None:
    """torch's distributions broadcast their shapes, and compare what they get with what they had."""

    def program(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        base = torch.distributions.StudentT(torch.full_like(x, 3.0), x, y.abs() + 1)
        moved = torch.distributions.TransformedDistribution(base, [torch.distributions.AffineTransform(y, 2.0)])
        return moved.log_prob(x) * moved.batch_shape[0]

    gm = trace(program, (torch.ones(2, 4), torch.ones(2, 1)))
    assert gm.report.facts.paths == 1
    for rows, columns in (3, 4), (1, 5), (1, 1):
        example = torch.rand(rows, columns), torch.rand(rows, 1)
        assert torch.equal(gm(*example), program(*example))
    with pytest.raises(GuardError):
        gm(torch.rand(2, 4), torch.rand(1, 1))


def test_broadcast_shapes_of_a_program_that_asks_nothing_else_are_one_node() -> None:
    gm = trace(lambda x, y: x.new_zeros(torch.broadcast_shapes(x.shape, y.shape)), (torch.ones(2, 4), torch.ones(2, 1)))
    assert len(gm.graph.find_nodes(op="call_function", target=torch.broadcast_shapes)) == 1
    for one, other in ((3, 1), (3, 5)), ((1, 1), (1, 1)), ((1, 6), (4, 6)):
        assert gm(torch.rand(one), torch.rand(other)).shape == torch.broadcast_shapes(one, other)
    with pytest.raises(RuntimeError, match="broadcast"):
        gm(torch.rand(2, 3), torch.rand(2, 4))


def test_a_recurrent_layer_beside_a_distribution_is_copied() -> None:
    """torch's distributions look through their own attributes, and a copied LSTM has its own in another order."""

    class Policy(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.encoder = nn.LSTM(2, 3)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            encoded = self.encoder(x)[0]
            if self.training:
                return torch.distributions.Categorical(logits=encoded).sample()
            return encoded.argmax(-1)

    gm = trace(Policy(), (torch.ones(2, 1, 2),))
    copied = copy.deepcopy(gm)
    assert torch.equal(copied.eval()(torch.ones(3, 1, 2)), gm.eval()(torch.ones(3, 1, 2)))
