"""Values that leave torch, and functions that cannot be traced: nodes that are run anew at each call."""

from __future__ import annotations

import collections
import heapq
import itertools
import operator
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from graphwright import CaptureError, GuardError, trace

INPUTS = [torch.tensor([1.0, 2.0, 3.0]), torch.tensor([3.0, -1.0, 0.5]), torch.tensor([-4.0, -1.0, 4.0])]


def rows(x: torch.Tensor) -> Iterator[float]:
    yield from x.tolist()


def generator(x: torch.Tensor) -> torch.Tensor:
    return x * sum(rows(x))


def numbers(x: torch.Tensor) -> torch.Tensor:
    first, *more = x.tolist()
    return x + (first if first > more[0] else max(more))


def array(x: torch.Tensor) -> torch.Tensor:
    values = x.numpy()
    middle = np.median(values)
    return torch.from_numpy(np.sort(values)) * float(middle) + values.sum() + int(values.argmax())


def array_decides(x: torch.Tensor) -> torch.Tensor:
    if np.abs(x.numpy()).max() > 3:
        return x + 1
    return x - 1


def implicit_array(x: torch.Tensor) -> torch.Tensor:
    return x + np.asarray(x).mean().item()


def sizes_to_numpy(x: torch.Tensor) -> torch.Tensor:
    return x * torch.tensor(np.array(x.shape)).sum()


def helper(values: Any) -> Any:
    return np.clip(values, -1, 1)


def passed_on(x: torch.Tensor) -> torch.Tensor:
    return torch.from_numpy(helper(x.numpy()))


def compared(x: torch.Tensor) -> torch.Tensor:
    y = x + 1 if torch.equal(x.sort().values, x) else x - 1
    y = y * 2 if x.allclose(x.abs()) else y
    return y + 1 if torch.is_nonzero(x[0] > 0) else y


def in_lists(x: torch.Tensor) -> Any:
    found, queue = [], collections.deque([x.numpy()])
    for i in range(3):
        found.append(x.numpy() * i)
    queue.appendleft(found[1])
    found.insert(0, queue[0])
    found += [found[0].copy()]
    list.append(found, x.numpy() + 1)
    return torch.from_numpy(np.concatenate(found)), len(found)


def in_dicts(x: torch.Tensor) -> Any:
    means, other = collections.defaultdict(list), {}
    means["x"].append(x.numpy())
    other.update({"a": x.numpy().sum()}, b=x.numpy().max())
    other.setdefault("c", []).append(other["a"] + 1)
    operator.setitem(other, "d", other["c"][0])
    return x + means["x"][0].sum(), {key: float(value[0] if key == "c" else value) for key, value in other.items()}


class Kept:
    pass


def in_objects_and_heaps(x: torch.Tensor) -> Any:
    kept, heap = Kept(), []
    setattr(kept, "array", x.numpy())  # noqa: B010
    heapq.heappush(heap, (1, kept.array))
    heapq.heappush(heap, (0, kept.array * 2))
    return x + heapq.heappop(heap)[1].sum()


def largest(x: torch.Tensor) -> Any:
    values = [x.numpy().sum(), x.numpy().max()]
    return x + max(values), sorted(values)[0] + x


PROGRAMS: list[Callable[[torch.Tensor], Any]] = [
    *(generator, numbers, array, array_decides, implicit_array, sizes_to_numpy, passed_on, compared),
    *(in_lists, in_dicts, in_objects_and_heaps, largest),
]


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda program: program.__name__)
def test_values_outside_of_torch_are_nodes(program: Callable[[torch.Tensor], Any]) -> None:
    gm = trace(program, INPUTS[0])
    gm.graph.lint()
    assert gm.coverage == 1.0
    for x in INPUTS:
        torch.testing.assert_close(gm(x.clone()), program(x.clone()), rtol=0, atol=0)


def test_a_list_has_the_length_of_the_example() -> None:
    gm = trace(numbers, INPUTS[0])
    with pytest.raises(GuardError, match="captured where this was 3; now it is 4"):
        gm(torch.ones(4))


def test_a_list_of_an_array_has_the_length_of_the_example() -> None:
    gm = trace(lambda x: torch.tensor(np.unique(x.numpy()).tolist()), torch.ones(3))
    assert torch.equal(gm(torch.zeros(2)), torch.zeros(1))
    with pytest.raises(GuardError, match="captured where this was 1; now it is 3"):
        gm(INPUTS[0])


def counted(x: torch.Tensor) -> torch.Tensor:
    counts = {}
    for value in x.tolist():
        counts[hash(round(value))] = 1
    return x * len(counts)


def through_a_generator(x: torch.Tensor) -> torch.Tensor:
    return x * len({hash(round(value)): 1 for value in rows(x)})


class Counted(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return counted(x)


class Around(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inner = Counted()
        self.linear = nn.Linear(3, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.linear(self.inner(x + 1)) - 1


OUTLINED = [
    pytest.param(lambda x: counted(x + 1) - 1, "counted", id="a function"),
    pytest.param(lambda x: through_a_generator(x + 1) - 1, "through_a_generator", id="a generator's caller"),
    pytest.param(Around(), "counted", id="below a module"),
]


@pytest.mark.parametrize(("program", "name"), OUTLINED)
def test_what_cannot_be_traced_is_one_node(program: Any, name: str) -> None:
    gm = trace(program, INPUTS[0])
    gm.graph.lint()
    (node,) = gm.graph.find_nodes(op="call_function", target=globals()[name])
    assert node.origin is not None
    assert 0 < gm.coverage < 1
    assert f"kept {name} as one node: it asks for the data of a tensor (as a key)" in str(gm.report)
    for x in (*INPUTS, torch.tensor([1.0, 1.0, 1.0])):
        torch.testing.assert_close(gm(x), program(x), rtol=0, atol=0)


def longest_run(x: torch.Tensor) -> int:
    lengths = []
    for _, run in itertools.groupby(x.round().tolist()):
        run = list(run)
        lengths.append(len(run))
    return max(lengths)


def test_what_asks_again_and_again_is_one_node() -> None:
    """What compares is C, and nothing of it can become a branch or loop."""
    gm = trace(lambda x: x[x >= 0] * longest_run(x), (torch.arange(12.0) // 2,))
    assert gm.graph.find_nodes(op="call_function", target=longest_run)
    assert "kept longest_run as one node: it forks too often" in str(gm.report)
    for x in torch.ones(4), torch.arange(3.0), torch.arange(20.0) // 3:
        assert torch.equal(gm(x), x * longest_run(x))


def test_what_needs_real_values_is_told_by_what_is_wrong_with_them() -> None:
    def program(x: torch.Tensor) -> list[int]:
        return [len(list(run)) for _, run in itertools.groupby(x[x >= 0].tolist())]

    with pytest.raises(CaptureError, match=r"forks into more than 8 paths\n  at .*test_outside\.py") as caught:
        trace(program, (torch.arange(12.0) // 2,))
    assert "sizes depend on data" not in str(caught.value)


def test_a_module_that_cannot_be_traced_is_one_node() -> None:
    class Keys(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            counts = {}
            for value in x.tolist():
                counts[hash(round(value))] = 1
            return x * len(counts)

    model = nn.Sequential(nn.Linear(3, 3), Keys())
    gm = trace(model, INPUTS[0])
    assert [node.target for node in gm.graph.nodes if node.op == "call_module"] == ["0", "1"]
    for x in INPUTS:
        torch.testing.assert_close(gm(x), model(x), rtol=0, atol=0)


def test_the_programs_own_entry_is_refused() -> None:
    with pytest.raises(CaptureError, match="asks for the data of a tensor \\(as a key\\)"):
        trace(counted, INPUTS[0])


def test_methods_that_change_arrays_and_sets_stay_where_nobody_reads_what_they_give() -> None:
    def ordered(x: torch.Tensor) -> Any:
        values = x.numpy().copy()
        values.sort()
        seen = set()
        for value in x.tolist():
            seen.add(value)
        return torch.from_numpy(values), len(seen)

    gm = trace(ordered, INPUTS[0])
    assert "values.sort()" in gm.code or "copy.sort()" in gm.code
    assert "seen.add(value)" in gm.code
    gm.graph.eliminate_dead_code()
    for x in (*INPUTS, torch.ones(4)):
        torch.testing.assert_close(gm(x), ordered(x), rtol=0, atol=0)


@pytest.mark.slow
def test_operators_are_known_by_their_functions_whatever_is_captured_first(tmp_path: Path) -> None:
    """A process that looks for operators in the middle of its first capture found what stood in their place."""
    program = tmp_path / "first.py"
    program.write_text(
        "import torch\n"
        "import graphwright\n"
        "from graphwright.ops import is_impure\n"
        "def f(x):\n"
        "    return x * 2 if x.mean().dtype == torch.float32 else x\n"
        "graph = graphwright.trace(f, (torch.ones(2),)).graph\n"
        "read = graph.find_nodes(op='call_function', target=torch.is_autocast_enabled)[0]\n"
        "print(is_impure(read))\n"
    )
    ran = subprocess.run([sys.executable, str(program)], capture_output=True, text=True, check=True)
    assert ran.stdout == "False\n"


SIDES = [
    lambda n, s: (n * s, s * n, n + s, n - s, n / s, n // s, n % s, n**s, n < s, s > n, n == s, n != s),
    lambda n, s: divmod(n, s) + divmod(s, n),
    lambda n, s: (int(n * s), float(n - s), 1 if n * s > 20 else 2, min(n, s), max(s, 2.0)),
    lambda n, s: (f"{s:.2f} {n}", str(s), f"{s!r}", "%.1f" % s),  # noqa: UP031
]


@pytest.mark.parametrize("sides", SIDES)
@pytest.mark.parametrize("number", [lambda x: np.sqrt(x.sum().item()), lambda x: np.mean(x.numpy())])
def test_numbers_of_numpy_beside_those_of_the_program(sides: Callable[..., Any], number: Callable[..., Any]) -> None:
    """A float64 of NumPy's is a float of Python's, too, and what stands for one is none."""

    def program(x: torch.Tensor) -> Any:
        return sides(x.size(0), number(x)), sides(x.max().item(), number(x))

    gm = trace(program, (torch.arange(1.0, 7),))
    for x in torch.arange(1.0, 7), torch.arange(2.0, 11):
        given, expected = gm(x), program(x)
        assert given == expected
        assert [[type(each) for each in part] for part in given] == [[type(each) for each in part] for part in expected]


WEIGHT = nn.Parameter(torch.ones(2))
ADAM = torch.optim.Adam([WEIGHT], lr=0.1)


def test_an_optimizer_that_keeps_something_is_refused_and_left_alone() -> None:
    def step(x: torch.Tensor) -> torch.Tensor:
        ADAM.zero_grad()
        (WEIGHT * x).sum().backward()
        ADAM.step()
        return WEIGHT.detach().clone()

    with pytest.raises(CaptureError, match=r"changes the global 'ADAM'.*\n.*\n.*step outside of the program"):
        trace(step, (torch.ones(2),))
    assert not ADAM.state


class Note:
    scale: float


def noting(x: torch.Tensor, name: str = "scale") -> torch.Tensor:
    note = Note()
    setattr(note, name, 2.0)
    return torch.relu(x) * note.scale


def finds_a_function(x: torch.Tensor) -> torch.Tensor:
    if x.sum() > 0:
        x = x + 1
    called = getattr(sys.modules[__name__], "not" + "ing")
    return called(x)  # type: ignore[no-any-return]


def test_what_stands_in_for_torchs_own_functions_is_no_change_by_the_program() -> None:
    before = torch.is_grad_enabled, torch.is_inference_mode_enabled
    gm = trace(finds_a_function, (torch.ones(3),))
    assert (torch.is_grad_enabled, torch.is_inference_mode_enabled) == before
    for x in (torch.ones(2), -torch.ones(4)):
        assert torch.equal(gm(x), finds_a_function(x))


class Tally:
    def __init__(self) -> None:
        self.counts = torch.zeros(3)

    def add(self, x: torch.Tensor) -> int:
        self.counts[:2] += x[:2]
        return len(str(x.sum().item()))


@pytest.mark.parametrize("is_refused", [False, True])
def test_a_capture_leaves_tensors_that_a_function_writes_to_which_is_one_node(is_refused: bool) -> None:
    tally = Tally()

    def program(x: torch.Tensor) -> torch.Tensor:
        y = x * tally.add(x)
        return y * hash(x.tolist()[0]) if is_refused else y

    if is_refused:
        with pytest.raises(CaptureError):
            trace(program, (torch.ones(3),))
    else:
        gm = trace(program, (torch.ones(3),))
        assert torch.equal(tally.counts, torch.zeros(3))
        assert torch.equal(gm(torch.ones(3)), torch.full((3,), 3.0))
        tally.counts[:2] -= 1
    assert torch.equal(tally.counts, torch.zeros(3))
