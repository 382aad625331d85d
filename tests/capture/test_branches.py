"""Questions of data, size and flags: branches of the graph that go where eager goes, for every input."""

from __future__ import annotations

import collections
import inspect
import itertools
import logging
import math
import types
import warnings
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

from graphwright import GraphModule, GuardError, Interpreter, symbolic_trace, trace
from graphwright.ops import cond

INPUTS = [sign * scale * torch.arange(1.0, n + 1) for sign in (1, -1) for scale in (0.1, 3.0) for n in (2, 3, 6)]


def nested(x: torch.Tensor) -> torch.Tensor:
    if x.sum() > 0:
        y = x + 1
        if x.max() > 2:
            y = y * 2
        elif x.max() > 1:
            y = y * 3
    else:
        y = -x
    return y


def early_return(x: torch.Tensor) -> torch.Tensor:
    if x.sum() > 5:
        return x * 2
    x = x + 1
    if x.size(0) > 2:
        if x.min() < 0:
            return x - 1
        x = x * 3
    return x / 2


def ternary(x: torch.Tensor) -> torch.Tensor:
    scale = 2.0 if x.mean() > 0 else -3.0
    return (x if x.size(0) > 2 else -x) * scale


def boolean_operators(x: torch.Tensor) -> torch.Tensor:
    big, small = x.max() > 2, x.min() < -2
    if (big and not small) or x.size(0) == 3:
        x = x + 1
    elif small or x.sum() == 0:
        x = x - 1
    return x


def values_of_operators(x: torch.Tensor) -> torch.Tensor:
    chosen = (x > 0).all() and x.sum()
    other = (x < 0).all() or x.sum()
    return chosen + other


def chained(x: torch.Tensor) -> torch.Tensor:
    return x * 2 if 0 < x.sum() < 5 else x * 3 if 2 <= x.size(0) < 3 else x


def asserts(x: torch.Tensor) -> torch.Tensor:
    assert x.sum() > -30, f"sum is {x.size(0)}"
    if x.size(0) == 6:
        raise ValueError("six", x.size(0))
    return x * 2


def numbers(x: torch.Tensor) -> torch.Tensor:
    n = x.size(0)
    scale = math.sqrt(n) + math.log(n)
    half = max(1, min(n // 2, math.ceil(n / 3)))
    return x[:half] * scale + int(n * 1.5) + float(n) + round(n / 7, 1) + len(x) + abs(-n)


def numbers_of_data(x: torch.Tensor) -> torch.Tensor:
    known = x.detach()
    total = known.sum().item()
    count = int(known.abs().max())
    return x * total + count + float(known[0]) + (1 if total > 2 else 0)


def helper(x: torch.Tensor, limit: float = 0.0) -> torch.Tensor:
    if x.sum() > limit:
        return x + 1
    return x - 1


def calls(x: torch.Tensor) -> torch.Tensor:
    return helper(helper(x), limit=3.0) + next(map(helper, [x]))


def closures(x: torch.Tensor) -> torch.Tensor:
    count = 0

    def step(v: torch.Tensor) -> torch.Tensor:
        nonlocal count
        if v.sum() > 0:
            count += 1
            return v + 1
        count += 10
        return v - 1

    x = step(step(x))
    return x + count


def containers(x: torch.Tensor) -> torch.Tensor:
    parts = [x, x + 1]
    table = {"scale": 2.0}
    if x.sum() > 0:
        parts[0] = x * 5
        table["scale"] = 4.0
    return (parts[0] + parts[1]) * table["scale"]


def unused_in_one_branch(x: torch.Tensor) -> torch.Tensor:
    if x.sum() > 0:
        extra = x + 1
        y = extra * 2
    else:
        y = x
    return y


def in_a_loop(x: torch.Tensor) -> torch.Tensor:
    for i in range(3):
        if x.sum() > i:
            x = x * 0.5
        else:
            x = x - 1
    return x


def raises_and_catches(x: torch.Tensor) -> torch.Tensor:
    try:
        if x.sum() > 0:
            raise ValueError("positive")
        y = x * 2
    except ValueError:
        y = x * 3
    return y


def different_kinds(x: torch.Tensor) -> torch.Tensor:
    bias = None if x.sum() > 0 else x + 1
    return x if bias is None else x + bias


def structures(x: torch.Tensor) -> dict[str, Any]:
    if x.sum() > 0:
        out = {"a": x, "b": [x + 1, 3]}
    else:
        out = {"a": -x, "b": [x + 2, 4]}
    return out


def comprehension(x: torch.Tensor) -> torch.Tensor:
    return sum(v if v.sum() > 0 else -v for v in [x, x - 2])


def in_place(x: torch.Tensor) -> torch.Tensor:
    y = x.clone()
    if y.sum() > 0:
        y[0] = 100.0
        y += 1
    else:
        y.mul_(2)
    return y


def without_grad(x: torch.Tensor) -> torch.Tensor:
    if x.sum() > 0:
        with torch.no_grad():
            y = x * 2
    else:
        y = x * 3
    return y + x


PROGRAMS: list[Callable[[torch.Tensor], Any]] = [
    *(nested, early_return, ternary, boolean_operators, values_of_operators, chained, asserts, numbers),
    *(numbers_of_data, calls, closures, containers, unused_in_one_branch, in_a_loop, raises_and_catches),
    *(different_kinds, structures, comprehension, in_place, without_grad),
]


def outcome(program: Callable[..., Any], x: torch.Tensor) -> tuple[Any, Any]:
    """What a program gives, and the gradient of the sum of it; or the exception."""
    x = x.clone().requires_grad_()
    try:
        value = program(x)
    except (ValueError, AssertionError) as error:
        message, *more = error.args
        return type(error), (str(message).split("\n")[0], *more)  # pytest adds lines to what its asserts raise
    leaves = torch.utils._pytree.tree_leaves(value)
    total = sum(leaf.sum() for leaf in leaves if isinstance(leaf, torch.Tensor))
    if not total.requires_grad:
        return value, None
    (grad,) = torch.autograd.grad(total, x, allow_unused=True)
    return value, grad


def same(one: Any, other: Any) -> None:
    torch.testing.assert_close(one, other, rtol=0, atol=0) if not isinstance(one[0], type) else None
    if isinstance(one[0], type):
        assert one == other


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda program: program.__name__)
def test_every_path_of_one_capture_equals_eager(program: Callable[..., Any]) -> None:
    gm = trace(program, INPUTS[0])
    gm.graph.lint()
    assert not [guard for guard in gm.guards if "==" in str(guard)]
    for x in INPUTS:
        expected = outcome(program, x)
        same(outcome(gm, x), expected)
        interpreter = Interpreter(gm)
        interpreter.extra_traceback = False
        same(outcome(interpreter.run, x), expected)


class Flags(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear, self.aux = nn.Linear(3, 3), nn.Linear(3, 2)

    def forward(self, x: torch.Tensor) -> Any:
        y = self.linear(x)
        if self.training:
            return y, self.aux(y)
        return y.softmax(-1)


def test_the_training_flag_decides_at_run_time() -> None:
    model = Flags().eval()
    gm = trace(model, torch.randn(2, 3))
    x = torch.randn(4, 3)
    torch.testing.assert_close(gm(x), model(x))
    model.train(), gm.train()
    torch.testing.assert_close(gm(x), model(x))


class Private(Flags):
    def forward(self, x: torch.Tensor) -> Any:
        self.__limit = 1.0  # a private name
        if x.sum() > self.__limit:
            return super().forward(x)
        return self.property_of(x)

    @property
    def property_of(self) -> Callable[[torch.Tensor], torch.Tensor]:
        return lambda x: x * 2 if self.training else x * 3


def test_super_private_names_and_properties() -> None:
    model = Private().eval()
    gm = trace(model, torch.ones(2, 3))
    for x, training in itertools.product((torch.ones(2, 3), -torch.ones(4, 3)), (True, False)):
        model.train(training), gm.train(training)
        torch.testing.assert_close(gm(x), model(x))


def test_the_code_reads_like_the_source() -> None:
    code = trace(boolean_operators, INPUTS[0]).code
    assert "if big and not small or x.size(0) == 3:" in code
    assert "if small or x.sum() == 0:" in code


def test_a_variable_of_one_side_is_missed_where_it_is_used() -> None:
    def program(x: torch.Tensor) -> torch.Tensor:
        if x.sum() > 0:
            extra = x + 1
        return x * extra

    gm = trace(program, torch.ones(2))
    assert torch.equal(gm(torch.ones(3)), program(torch.ones(3)))
    with pytest.raises(UnboundLocalError, match="extra"):
        gm(-torch.ones(2))


class Prepares(nn.Module):
    """A variable that one side assigns, used where the same question is asked again."""

    def __init__(self, ask: Callable[[nn.Module, torch.Tensor], Any]) -> None:
        super().__init__()
        self.ask = ask

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        is_asked = self.ask(self, x)
        if is_asked:
            extra = x + 1
        x = x * 2
        for _ in range(2):
            if is_asked:
                x = x * extra
        return x


@pytest.mark.parametrize(
    "ask",
    [
        pytest.param(lambda self, x: (x > 0).any().item(), id="data"),
        pytest.param(lambda self, x: not self.training, id="flag"),
        pytest.param(lambda self, x: x.size(0) > 2, id="size"),
    ],
)
def test_a_variable_of_one_side_is_there_where_that_side_was_taken(ask: Any) -> None:
    model = Prepares(ask)
    gm = trace(model, torch.ones(3))
    inputs = (torch.ones(3), -torch.ones(3), torch.ones(2), -torch.ones(2))
    for x, training in itertools.product(inputs, (True, False)):
        model.train(training), gm.train(training)
        same(outcome(gm, x), outcome(model, x))


def test_a_way_on_which_the_example_fails_is_guarded_against() -> None:
    def program(x: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        if mask.all():
            return x * 2
        return x[~mask] * torch.ones(17)

    gm = trace(program, (torch.ones(3), torch.ones(3, dtype=torch.bool)))
    assert [guard.what for guard in gm.guards] == ["bool_1 was True"]
    assert torch.equal(gm(torch.ones(2), torch.ones(2, dtype=torch.bool)), torch.full((2,), 2.0))
    with pytest.raises(GuardError, match="captured where this was True"):
        gm(torch.ones(17), torch.zeros(17, dtype=torch.bool))


def test_where_a_tensor_may_be_none_the_example_tells_which_it_is() -> None:
    def masked(x: torch.Tensor, keep: torch.Tensor) -> torch.Tensor:
        mask = None if keep.all() else torch.ones(8)
        return x if mask is None else x[:4] + mask  # fails for the shapes of the example

    gm = trace(masked, (torch.ones(8), torch.ones(3)))
    assert torch.equal(gm(torch.ones(9), torch.ones(2)), torch.ones(9))
    with pytest.raises(GuardError, match="mask is None"):
        gm(torch.ones(8), torch.zeros(3))


def test_operations_that_fail_on_a_way_not_taken_are_not_reported() -> None:
    reported: list[logging.LogRecord] = []
    handler = logging.Handler()
    handler.emit = reported.append  # type: ignore[method-assign]
    logging.getLogger("torch._subclasses.fake_tensor").addHandler(handler)
    try:
        gm = trace(lambda x: x + torch.ones(3) if x.sum() > 9 else x + 1, (torch.ones(4),))
    finally:
        logging.getLogger("torch._subclasses.fake_tensor").removeHandler(handler)
    assert torch.equal(gm(torch.ones(4)), torch.full((4,), 2.0))
    assert reported == []


def test_what_is_none_and_what_is_contained_read_as_they_are_written() -> None:
    class Cached(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.cache: dict[str, torch.Tensor] = {}

        def forward(self, x: torch.Tensor, keep: torch.Tensor) -> torch.Tensor:
            mask = None if keep.all() else x * 2
            if mask is not None:
                x = x + mask
            if "twice" not in self.cache:
                self.cache["twice"] = x * 2
            return self.cache["twice"] + x

    model = Cached()
    gm = trace(model, (torch.ones(3), torch.ones(2)))
    assert "    if mask is not None:\n" in gm.code and "    if 'twice' not in cache:\n" in gm.code
    for keep in (torch.ones(2), torch.zeros(2)):
        assert torch.equal(gm(torch.ones(3), keep), model(torch.ones(3), keep))


def test_the_way_of_the_example_must_not_fail() -> None:
    def program(x: torch.Tensor) -> torch.Tensor:
        return x.view(7, -1) if x.sum() > 0 else x

    with pytest.raises(RuntimeError, match=r"shape '\[7, -1\]' is invalid"):
        trace(program, torch.ones(3))


def test_an_input_that_is_read_on_one_way_only_is_checked_on_all() -> None:
    def program(xs: list[torch.Tensor]) -> Any:
        if xs[0].sum() > 0:
            return xs[1] * 2, xs[1].dtype
        return xs[0]

    inputs = [torch.ones(3), torch.ones(4)]
    gm = trace(program, (inputs,))
    assert torch.equal(gm(inputs)[0], program(inputs)[0])
    with pytest.raises(GuardError, match="float64"):
        gm([-torch.ones(3), torch.ones(4).double()])


def test_functions_stay_as_they_are() -> None:
    codes = [program.__code__ for program in (helper, nested)]
    cells = inspect.getclosurevars(nested)
    trace(calls, INPUTS[0])
    trace(nested, INPUTS[0])
    assert [program.__code__ for program in (helper, nested)] == codes
    assert inspect.getclosurevars(nested) == cells
    assert isinstance(trace(nested, INPUTS[0]), GraphModule)


def itself(x: torch.Tensor) -> torch.Tensor:
    assert itself.__name__ == "itself"
    return x if x.sum() > 0 else -x


def test_a_function_may_mention_itself() -> None:
    gm = trace(itself, torch.ones(2))
    assert torch.equal(gm(-torch.ones(3)), torch.ones(3))


class Remembers(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inner = Inner()
        self.steps: list[float] = [1.0]

    def forward(self, x: torch.Tensor) -> Any:
        torch._assert(x.size(0) < 6, f"at most five rows, not {x.size(0)}")
        torch._check_value(x.size(0) > 1, lambda: f"at least two rows, not {x.size(0)}")
        if x.sum() > 0:
            self.steps[0] = 3.0
            x = self.inner(x)
        out = collections.OrderedDict(first=x * self.steps[0] * self.inner.factor)
        self.steps[0], self.inner.factor = 1.0, 1.0
        return out


class Inner(nn.Module):
    factor = 1.0

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.factor = 5.0
        return x + 1


def test_what_a_side_changes_in_modules_is_joined() -> None:
    model = Remembers()
    gm = trace(model, torch.ones(2))
    for x in (torch.ones(3), -torch.ones(4)):
        expected, found = model(x), gm(x)
        assert type(found) is type(expected)
        torch.testing.assert_close(found, expected)
    with pytest.raises(AssertionError, match="at most five rows, not 7"):
        gm(torch.ones(7))
    with pytest.raises(ValueError, match="at least two rows, not 1"):
        gm(torch.ones(1))


def marked(function: Any) -> Any:
    return function


@marked
@marked
def decorated(x: torch.Tensor) -> torch.Tensor:
    if x.sum() > 0:
        x = x + 1
    shifted = x * 2
    return shifted


def test_a_decorated_function_keeps_its_lines() -> None:
    first = decorated.__code__.co_firstlineno
    code = trace(decorated, torch.ones(2)).code
    assert f"# {first + 3}: if x.sum() > 0:" in code
    assert f"# {first + 5}: shifted = x * 2" in code
    assert "shifted = x * 2" in code


def warns(x: torch.Tensor) -> torch.Tensor:
    warnings.warn("careful", stacklevel=1)
    return x + 1 if x.sum() > 0 else x * x.size(0)


def test_a_warning_of_the_program_is_given_once_for_its_line() -> None:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("default")
        trace(warns, (torch.ones(3),))
    assert [(str(w.message), w.filename) for w in caught] == [("careful", __file__)]


def third(x: torch.Tensor) -> torch.Tensor:
    return x + 1 if x.max() > 1 else x


def second(x: torch.Tensor) -> torch.Tensor:
    return third(x) if x.min() > -1 else third(-x)


def first(x: torch.Tensor) -> torch.Tensor:
    if x.sum() > 0:
        x = x * 2
    return second(x)


def test_functions_with_conditions_are_converted_before_they_ask_too() -> None:
    gm = trace(first, INPUTS[0])
    assert gm.report.facts.passes == 2
    assert trace(lambda x: x + 1, INPUTS[0]).report.facts.passes == 1
    for x in INPUTS:
        assert torch.equal(gm(x), first(x))


def of_some_rank(x: torch.Tensor) -> torch.Tensor:
    return x[None] if x.sum() > 2 else x


def refuses_rows(x: torch.Tensor) -> torch.Tensor:
    y = of_some_rank(x)
    if y.dim() == 2:
        raise ValueError("rows")
    return y


def test_what_ends_by_raising_returns_nothing() -> None:
    gm = trace(refuses_rows, torch.zeros(3))
    statements = [line.strip() for line in gm.code.splitlines() if line.strip() and "#" not in line]
    assert statements[-3:] == ["if x.sum() > 2:", "raise ValueError('rows')", "return x"]
    assert torch.equal(gm(torch.zeros(3)), torch.zeros(3))
    with pytest.raises(ValueError, match="rows"):
        gm(torch.ones(3))


def raises_from_an_error(x: torch.Tensor) -> torch.Tensor:
    if x.sum() > 0:
        return x + 1
    raise ValueError(f"{x.shape[0]} rows") from KeyError("sum")


def raises_from_a_class(x: torch.Tensor) -> torch.Tensor:
    if x.sum() > 0:
        return x + 1
    raise ValueError("negative") from KeyError


@pytest.mark.parametrize("program", [raises_from_an_error, raises_from_a_class])
def test_a_side_raises_from_what_the_program_says(program: Any) -> None:
    gm = trace(program, (torch.ones(3),))
    assert torch.equal(gm(torch.ones(2)), torch.full((2,), 2.0))
    for function in (program, gm, symbolic_trace(program)):
        with pytest.raises(ValueError, match=r"negative|2 rows") as raised:
            function(-torch.ones(2))
        assert type(raised.value.__cause__) is KeyError
        assert raised.value.__cause__.args == (("sum",) if program is raises_from_an_error else ())


def test_what_only_one_of_two_ends_asks_is_guarded_for_both() -> None:
    """The guard is written into the graph of the end that stays, not of the one that is merged into it."""

    def f(x: Any, box: Any) -> Any:
        if x.sum() > 0:
            return x, 1
        return x + box.rows[0] if box.rows[0].device.type == "cpu" else x

    box = types.SimpleNamespace(rows=[torch.ones(2)])
    gm = trace(f, (torch.ones(2), box))
    assert str(gm.guards[-1]).endswith("box_rows.device is device(type='cpu')")
    assert gm(torch.ones(2), box)[1] == 1
    assert torch.equal(gm(-torch.ones(2), box), torch.zeros(2))


def fitted(x: torch.Tensor) -> torch.Tensor:
    if x.shape[1] == 1:
        return x
    return x.view(x.shape[0], 7)  # which three columns are not


def test_what_fails_where_the_example_does_not_come_decides_the_branch_around() -> None:
    """And not the branch that it is in first, which would be answered as it fails."""

    def run(x: torch.Tensor) -> torch.Tensor:
        return fitted(x) * 2 if x.shape[0] == 1 else x + 1

    gm = trace(run, torch.randn(2, 3))
    guarded = [entry for entry in gm.report.restarts if "guard" in entry.text]
    assert ["else x + 1" in entry.at for entry in guarded] == [True]
    for rows in (2, 5):
        x = torch.randn(rows, 3)
        assert torch.equal(gm(x), run(x))
    with pytest.raises(GuardError):
        gm(torch.randn(1, 7))


def drawn_part(x: torch.Tensor) -> torch.Tensor:
    size = x.size(0)
    n = int(size * x.sum().item())
    if n <= size:
        return x + torch.randint(0, size - n + 1, size=(1,)).item()
    return x


def next_of_table(x: torch.Tensor) -> torch.Tensor:
    steps = torch.tensor([7, 3])
    for step in steps:
        place = torch.where(steps == step)[0]
        x = x + 1 if place == len(steps) - 1 else x * steps[place + 1]
    return x


@pytest.mark.parametrize("program", [drawn_part, next_of_table])
def test_a_way_that_data_does_not_lead_the_example_may_fail_with_its_data(program: Callable[..., Any]) -> None:
    for example in (torch.ones(4) * 0.2, torch.ones(4) * 2):
        gm = trace(program, example)
        for x in (torch.ones(4) * 0.2, torch.ones(4) * 2, torch.ones(3) * 0.1):
            torch.manual_seed(0)
            expected = program(x)
            torch.manual_seed(0)
            assert torch.equal(gm(x), expected)


def left_by_an_error(x: torch.Tensor, n: int) -> torch.Tensor:
    if n > 3 or n < -3:
        raise ValueError("far")
    return x * 2 if n > 3 else x + 1


def written_to_since(x: torch.Tensor, n: int) -> torch.Tensor:
    flag = x.sum() < n
    if flag:
        raise ValueError("far")
    return x * 2 if flag.logical_not_() else x + 1


@pytest.mark.parametrize("program", [left_by_an_error, written_to_since])  # two branches each
def test_what_one_side_leaves_by_an_error_is_not_asked_again(program: Callable[..., Any]) -> None:
    gm = trace(program, (torch.ones(2), 2))
    assert torch.equal(gm(torch.ones(2), 1), program(torch.ones(2), 1))
    with pytest.raises(ValueError, match="far"):
        gm(torch.ones(2), 5)
    assert sum(node.target is cond for node in gm.graph.all_nodes()) == 2
