"""What a program does beside computing values, while torch.export watches."""

import pytest
import torch
from torch import Tensor, nn

pytest.importorskip("onnxruntime")

from graphwright.onnx import ExportError, export


class Noting(nn.Module):
    """Notes sizes and kinds of its input in attributes, as Hugging Face's Swin and mixtures of experts do."""

    window = 4
    scaled = True

    def forward(self, x: Tensor) -> Tensor:
        self.kind = x.dtype  # what nobody reads
        if x.shape[1] <= 4:
            self.window = 4  # what it is already
        return (x.unfold(1, self.window, self.window).sum(1)).to(self.kind)


class Counting(nn.Module):
    count = 0

    def forward(self, x: Tensor) -> Tensor:
        self.count = self.count + 1
        return x * self.count


@pytest.mark.slow
def test_attributes_that_the_next_call_does_not_need() -> None:
    model = Noting().eval()
    program = export(model, torch.randn(2, 4))
    x = torch.randn(5, 4)
    torch.testing.assert_close(program(x), model(x))
    assert [part.detail for part in program.report.regions if part.became == "left out"] == [
        "what is written to 'kind', which the program does not read"
    ]
    with pytest.raises(ExportError, match="keeps nothing in 'count' from call to call"):
        export(Counting().eval(), torch.randn(2, 4))


@pytest.mark.slow
def test_numbers_of_a_range_in_reverse() -> None:
    def program(x: Tensor) -> Tensor:
        down = torch.tensor(list(range(0, x.shape[0] - 1, 2))[::-1], device=x.device)
        return down[None, :].repeat(2, 1) < x[0]

    exported = export(program, torch.randn(5))
    for size in (2, 6, 9):
        x = torch.randn(size) * 3
        assert torch.equal(exported(x), program(x))


def test_a_size_counts_as_an_int() -> None:
    def program(x: Tensor) -> Tensor:
        half = x.shape[0] // 2
        return x[:half] if isinstance(half, int) else x

    exported = export(program, torch.randn(6))
    assert exported(torch.randn(9)).shape == (4,)


@pytest.mark.slow
def test_the_parts_of_a_tensor_as_one_tensor() -> None:
    """As Hugging Face's models make one tensor of the features of several images."""

    def program(x: Tensor) -> tuple[Tensor, ...]:
        return torch.cat(list(x), 1), torch.concatenate(list(x), axis=1), torch.stack(tuple(x), -1)

    exported = export(program, torch.randn(3, 4, 2))
    x = torch.randn(5, 4, 3)
    for given, wanted in zip(exported(x), program(x), strict=True):
        torch.testing.assert_close(given, wanted)


def test_inputs_are_called_what_they_are_in_whatever_order_they_are_given() -> None:
    def program(a: Tensor, b: Tensor, **more: Tensor) -> Tensor:
        return 100 * a + 10 * b + more["c"]

    one, two, three = (torch.full((2,), float(each)) for each in (1, 2, 3))
    exported = export(program, (), {"c": three, "b": two, "a": one})
    assert exported.input_names == ["a", "b", "c"]
    assert exported.run([one, two, three])[0].tolist() == [123.0, 123.0]
    assert exported(b=two, a=one, c=three).tolist() == [123.0, 123.0]


@pytest.mark.slow
def test_a_program_that_does_not_work_when_it_is_exported() -> None:
    """As masks in some of Hugging Face's models: the program that runs here is exported, then."""

    def program(x: Tensor) -> Tensor:
        mask = None if torch.compiler.is_compiling() else torch.ones_like(x)
        return x * mask[:, 0]

    x = torch.randn(3, 3)
    assert torch.equal(export(program, torch.randn(3, 3))(x), program(x))


@pytest.mark.slow
def test_a_function_that_takes_none_gets_none() -> None:
    """What may be None is given to functions for which None means something else than a tensor, and is a result."""

    def program(x: Tensor) -> tuple[Tensor | None, ...]:
        low = x.mean() if x.sum() > 0 else None
        seen = (x > -9)[None, None] if x.sum() > 0 else None
        y = x[None, None]
        return (
            low,
            torch.clamp(x, low, x.max()),
            nn.functional.layer_norm(x, (3,), weight=None if low is None else x[0]),
            nn.functional.scaled_dot_product_attention(y, y, y, attn_mask=seen),
        )

    exported = export(program, torch.rand(3, 3))
    for x in (torch.rand(3, 3), -torch.rand(3, 3)):
        for given, wanted in zip(exported(x), program(x), strict=True):
            assert (given is None) == (wanted is None)
            if wanted is not None:
                torch.testing.assert_close(given, wanted)


@pytest.mark.parametrize("make", [lambda: nn.Conv1d(2, 3, 3).double(), lambda: nn.Conv1d(2, 3, 3).bfloat16()])
def test_what_onnx_runtime_has_no_kernels_for_is_told(make) -> None:  # type: ignore[no-untyped-def]
    model = make().eval()
    x = torch.randn(2, 2, 8, dtype=model.weight.dtype)
    with pytest.warns(UserWarning, match="ONNX Runtime cannot run the model"):
        program = export(model, x)
    with pytest.raises(ExportError, match="ONNX Runtime cannot run the model"):
        program(x)


def test_sizes_that_the_model_has_not_are_told() -> None:
    program = export(nn.Linear(3, 2).eval(), torch.randn(4, 3))
    with pytest.raises(ExportError, match="invalid dimensions"):
        program(torch.randn(4, 5))
