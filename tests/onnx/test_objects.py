"""Objects among the arguments and the results of programs that become ONNX models."""

import dataclasses
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

pytest.importorskip("onnxruntime")

from graphwright.onnx import ExportError, export


class Memory:
    def __init__(self, keys: Tensor) -> None:
        self.keys, self.name = keys, "memory"


@dataclasses.dataclass
class Pair:
    one: Tensor
    size: Any = 3


class Row(list[Tensor]):
    pass


def _given(program: Callable[..., Any], given: Any, other: Any) -> tuple[Any, Any]:
    """What a program and its model give for other arguments than those of the export."""
    return program(*other), export(program, given)(*other)


def test_an_object_in_the_result_holds_what_the_model_gives() -> None:
    def program(x: Tensor) -> dict[str, Any]:
        memory = Memory.__new__(Memory)
        memory.keys = x * 2
        return {"y": x + 1, "first": memory, "again": memory}

    wanted, given = _given(program, (torch.randn(3),), (torch.randn(5),))
    assert torch.equal(given["first"].keys, wanted["first"].keys) and type(given["first"]) is Memory
    assert given["first"] is given["again"]


@pytest.mark.slow
def test_classes_of_containers_that_torch_s_pytrees_do_not_know() -> None:
    wanted, given = _given(lambda x: Row([x + 1, x * 2]), (torch.randn(3),), (torch.randn(5),))
    assert type(given) is Row and all(map(torch.equal, given, wanted))
    wanted, given = _given(lambda x: Pair(x + 1, x.shape[0]), (torch.randn(3),), (torch.randn(5),))
    assert torch.equal(given.one, wanted.one) and given.size == wanted.size == 5


def test_a_slice_of_sizes_is_refused() -> None:
    with pytest.raises(ExportError, match="gives a slice of values that only a run knows"):
        export(lambda x: (x + 1, slice(0, x.shape[0])), torch.randn(3))


def test_tensors_in_an_object_are_inputs() -> None:
    program = export(lambda x, memory: x + memory.keys.sum(), (torch.ones(3), Memory(torch.ones(2))))
    assert program.input_names == ["x", "memory_keys"]
    assert torch.equal(program(torch.ones(4), Memory(torch.full((5,), 2.0))), torch.full((4,), 11.0))
    other = Memory(torch.ones(2))
    other.name = "another"
    with pytest.raises(ExportError, match=r"argument 'memory\.name' was 'memory' when the model was exported"):
        program(torch.ones(3), other)


@pytest.mark.slow
def test_what_a_program_writes_to_an_object_is_in_it_after_a_call() -> None:
    def grow(x: Tensor, memory: Memory) -> tuple[Tensor, Memory]:
        memory.keys = torch.cat([memory.keys, x])
        return memory.keys.sum() + x, memory

    def only_write(x: Tensor, memory: Memory) -> Tensor:
        memory.keys = memory.keys + x.sum()
        return x

    for function in (grow, only_write):
        program = export(function, (torch.randn(1), Memory(torch.randn(2))), verify=True)
        mine, its = Memory(torch.ones(4)), Memory(torch.ones(4))
        for _ in range(3):
            x = torch.randn(1)
            function(x, mine)
            result = program(x, its)
            torch.testing.assert_close(its.keys, mine.keys)
        assert function is only_write or result[1] is its


def test_what_is_written_to_a_list_or_dict_of_the_caller_is_refused() -> None:
    def append(x: Tensor, rows: list[Tensor]) -> Tensor:
        rows.append(x * 2)
        return x + 1

    def set_item(x: Tensor, rows: dict[str, Tensor]) -> Tensor:
        rows["row"] = x * 2
        return x + 1

    for function, rows in ((append, [torch.ones(3)]), (set_item, {})):
        with pytest.raises(ExportError, match="writes to a list or dict that it is given"):
            export(function, (torch.ones(3), rows))


@pytest.mark.slow
def test_a_decoder_step_with_its_cache() -> None:
    class Decoder(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.linear = nn.Linear(4, 4)

        def forward(self, x: Tensor, cache: Memory | None = None) -> dict[str, Any]:
            keys = self.linear(x)
            if cache is None:
                cache = Memory.__new__(Memory)
                cache.keys = keys
            else:
                cache.keys = torch.cat([cache.keys, keys], 1)
            return {"y": torch.softmax(x @ cache.keys.mT, -1) @ cache.keys, "cache": cache}

    torch.manual_seed(0)
    model = Decoder().eval()
    start = export(model, torch.randn(2, 5, 4))
    step = export(model, (torch.randn(2, 1, 4), model(torch.randn(2, 5, 4))["cache"]))
    prompt = torch.randn(3, 7, 4)
    with torch.no_grad():
        mine, its = model(prompt)["cache"], start(prompt)["cache"]
        for _ in range(3):
            x = torch.randn(3, 1, 4)
            torch.testing.assert_close(step(x, its)["y"], model(x, mine)["y"])
    assert its.keys.shape == (3, 10, 4)
