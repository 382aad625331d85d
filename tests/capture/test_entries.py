"""Several captures of one entry point, and several entry points of one module."""

from __future__ import annotations

import copy
import functools
import inspect
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import graphwright
from graphwright import CaptureError, GraphError, GraphModule, GuardError, Interpreter, trace
from graphwright.runtime import choose


def gate(x: torch.Tensor, mask: torch.Tensor | None = None) -> torch.Tensor:
    if mask is not None:
        x = x * mask
    return x.relu()


def both() -> GraphModule:
    return trace(gate, examples=[((torch.ones(3),), {}), ((torch.ones(3),), {"mask": torch.ones(3)})])


class Coder(nn.Module):
    """Two entry points, one of which uses the other; state that both change."""

    def __init__(self) -> None:
        super().__init__()
        self.inner, self.outer = nn.Linear(4, 3), nn.Linear(3, 4)
        self.norm = nn.BatchNorm1d(3)
        self.register_buffer("calls", torch.zeros(()))

    def encode(self, x: torch.Tensor, scale: float = 1.0) -> torch.Tensor:
        self.calls.add_(1)
        return self.norm(self.inner(x)) * scale

    def decode(self, code: torch.Tensor) -> torch.Tensor:
        return self.outer(code)

    @staticmethod
    def distance(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        return (a - b).abs().mean()

    def forward(self, x: torch.Tensor, *, scale: float = 1.0) -> torch.Tensor:
        return self.decode(self.encode(x, scale))

    def doubled(self, x: torch.Tensor) -> torch.Tensor:
        return self.encode(x) * 2


X = torch.randn(5, 4)
CODE = torch.randn(5, 3)


def coder(model: Coder) -> GraphModule:
    return trace(
        model,
        methods={
            "encode": ((X,), {"scale": 2.0}),
            "forward": [((X,), {})],
            "decode": CODE,
            "distance": ((X, X), {}),
        },
    )


# ---- several examples


def test_a_call_goes_to_the_capture_that_fits_it() -> None:
    gm = both()
    for size in (3, 7):
        x, mask = torch.randn(size), torch.randn(size)
        for call in (lambda f, x=x: f(x), lambda f, x=x, m=mask: f(x, m), lambda f, x=x, m=mask: f(mask=m, x=x)):
            assert torch.equal(call(gm), call(gate))


def test_each_capture_is_printed_and_has_its_graph() -> None:
    gm = both()
    assert gm.code.strip().splitlines()[2:] == [
        "    misfit = unlike_inputs(x=(x, torch.Tensor), mask=(mask, None))",
        "    misfit_1 = misfit and unlike_inputs(x=(x, torch.Tensor), mask=(mask, torch.Tensor))",
        "    capture = choose('gate', (misfit, misfit_1), (x,), mask=(mask, None));  del misfit, misfit_1",
        "    if capture == 1:",
        f"        # {line_of('return x.relu()')}: return x.relu()",
        "        return x.relu()",
        f"    # {line_of('x = x * mask')}: x = x * mask",
        "    x_1 = x * mask",
        f"    # {line_of('return x.relu()')}: return x.relu()",
        "    return x_1.relu()",
    ]
    assert gm.graphs.names == ["forward_1", "forward_2"] and len(gm.graphs) == 2
    assert [node.name for node in gm.graphs[0].nodes] == ["x", "mask", "relu", "output"]
    assert gm.graphs["forward_2"] is gm.graphs[1]
    assert str(gm.graphs).startswith("forward_1: graph():\n    %x")
    with pytest.raises(GraphError, match="there is no graph 'encode'"):
        gm.graphs["encode"]
    gm.graph.lint()
    assert [str(guard) for guard in gm.guards] == [
        *("forward_1: x is a tensor", "forward_1: mask is None"),
        *("forward_2: x is a tensor", "forward_2: mask is a tensor"),
    ]


def line_of(text: str) -> int:
    lines = Path(__file__).read_text().splitlines()
    return next(i for i, line in enumerate(lines, start=1) if line.strip() == text)


def test_an_edit_of_one_capture_takes_effect() -> None:
    gm = both()
    x, mask = torch.randn(3), torch.randn(3)
    assert torch.equal(gm(x), x.relu())
    gm.graphs[0].find_nodes(op="call_method", target="relu")[0].target = "neg"
    assert torch.equal(gm(x), -x)
    assert torch.equal(gm(x, mask), gate(x, mask))


def test_an_uncovered_call_says_why_and_what_to_add() -> None:
    with pytest.raises(GuardError) as caught:
        both()(torch.ones(2, 3), mask=[torch.zeros(3, dtype=torch.int64)])
    assert str(caught.value) == (
        "no capture of gate covers this call\n"
        "  capture 1: argument 'mask' was None when the program was captured; now it is list\n"
        "  capture 2: argument 'mask' was a tensor when the program was captured; now it is list\n"
        "  at gate\n"
        "  fix: capture again with one more example: examples=[..., "
        "((torch.rand(2, 3),), {'mask': [torch.zeros(3, dtype=torch.int64)]})]"
    )


def tower(x: Any, n: int = 1, flag: bool = False, *more: Any, kind: str = "sum", **named: Any) -> Any:
    """Asks about everything that an input may be."""
    total = x["a"][0] if isinstance(x, dict) else x[0] if isinstance(x, tuple | list) else x
    for item in more:
        total = total + item
    for item in named.values():
        total = total * item
    if total.dtype == torch.float64:
        total = total - 1
    if total.dim() == 2:
        total = total.t()
    if isinstance(n, float):
        total = total / n
    return (total.neg() if flag else total, n, kind)


T, WIDE, DOUBLE = torch.randn(3), torch.randn(2, 3), torch.randn(3, dtype=torch.float64)
CALLS: list[tuple[tuple[Any, ...], dict[str, Any]]] = [
    ((T,), {}),
    ((WIDE,), {}),
    ((DOUBLE,), {}),
    (([T],), {}),
    (([T, T],), {}),
    (((T,),), {}),
    (({"a": [T]},), {}),
    (({"a": [T], "b": T},), {}),
    ((T, 2.5), {}),
    ((T, 2, True), {}),
    ((T, 2, True, T), {}),
    ((T, 2, True, T, T), {}),
    ((T,), {"kind": "mean"}),
    ((T,), {"scale": T}),
    ((T,), {"scale": T, "shift": T}),
    ((DOUBLE, 2), {"flag": True, "scale": T}),
]


def test_captures_differ_by_class_structure_dtype_rank_and_value() -> None:
    gm = trace(tower, examples=CALLS)
    assert len(gm.graphs) == len(CALLS)
    taken = []
    for args, kwargs in CALLS:
        assert_same(gm(*args, **kwargs), tower(*args, **kwargs))
        taken.append(chosen(gm, args, kwargs))
    assert taken == list(range(1, len(CALLS) + 1))
    for args, kwargs in UNCOVERED:
        with pytest.raises(GuardError, match="no capture of tower covers this call"):
            gm(*args, **kwargs)


UNCOVERED: list[tuple[tuple[Any, ...], dict[str, Any]]] = [
    ((T, True), {}),
    ((T, None), {}),
    ((T, 1, 1), {}),
    (([T, T, T],), {}),
    (([1.0],), {}),
    (({"b": [T]},), {}),
    ((T,), {"kind": b"sum"}),
    ((T,), {"other": T}),
    ((T, 1, False, None), {}),
]


def chosen(gm: GraphModule, args: Any, kwargs: Any) -> int:
    """The number of the capture that a call goes to."""
    found = []
    names = gm.forward.__globals__
    names["choose"] = lambda *args, **kwargs: found.append(choose(*args, **kwargs)) or found[0]
    gm(*args, **kwargs)
    names["choose"] = choose
    return found[0]


def assert_same(one: Any, other: Any) -> None:
    assert type(one) is type(other)
    if isinstance(one, torch.Tensor):
        torch.testing.assert_close(one, other)
    elif isinstance(one, tuple | list):
        assert len(one) == len(other)
        for a, b in zip(one, other, strict=True):
            assert_same(a, b)
    else:
        assert one == other


def test_sizes_decide_where_they_are_guarded() -> None:
    def rows(x: torch.Tensor) -> list[torch.Tensor]:
        return [x[i] for i in range(int(f"{x.size(0) // 2}"))]

    gm = trace(rows, examples=[((torch.ones(4, 2),), {}), ((torch.ones(6, 2),), {})])
    for size in (4, 5, 6, 7):
        assert_same(gm(torch.ones(size, 3)), rows(torch.ones(size, 3)))
    with pytest.raises(GuardError, match=r"capture 2: at test_entries.py:\d+: return .* where this was 3; now it is 5"):
        gm(torch.ones(10, 2))
    assert "x.size(0) // 2" in gm.code


def test_lists_that_captures_start_empty_decide_nothing() -> None:
    def gathered(x: torch.Tensor, more: torch.Tensor | None = None) -> Any:
        rows = []
        while x.sum() > 0:
            x = x - 1
            rows.append(x)
        return (rows, len(rows)) if more is None else (rows, more)

    one = torch.ones(3)
    gm = trace(gathered, examples=[((one,), {}), ((one, one), {})])
    for given in [(one,), (one * 3, one), (-one,), (-one, -one)]:
        assert_same(gm(*given), gathered(*given))


class Counter(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv1d(1, 1, 3, stride=2)
        self.register_buffer("seen", torch.zeros(()))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.seen.add_(1)
        y = self.conv(x + torch.rand(()) * 0)
        return torch.stack([y[..., i] for i in range(int(f"{y.size(-1)}"))])


def test_a_guard_inside_a_capture_is_an_error_and_never_the_way_to_the_next_one() -> None:
    model = Counter()
    short, long = torch.randn(1, 1, 5), torch.randn(1, 1, 9)
    gm = trace(model, examples=[((short,), {}), ((long,), {})])
    assert_same(gm(short), model(short))
    with pytest.raises(GuardError, match="the program was captured where this was 2; now it is 3"):
        gm(torch.randn(1, 1, 7))


def test_nothing_runs_before_a_capture_is_chosen() -> None:
    def program(x: torch.Tensor, seen: torch.Tensor, twice: bool = False) -> torch.Tensor:
        seen.add_(1)
        noise = torch.rand(3)
        return (x + noise) * (2 if twice else 1)

    x, seen = torch.ones(3), torch.zeros(())
    gm = trace(program, examples=[((x, seen), {}), ((x, seen, True), {})])
    torch.manual_seed(3)
    before = torch.get_rng_state()
    with pytest.raises(GuardError):
        gm(x, seen, twice=1)
    assert seen == 0 and torch.equal(torch.get_rng_state(), before)
    result = gm(x, seen, twice=True)
    torch.manual_seed(3)
    assert torch.equal(result, program(x, torch.zeros(()), True)) and seen == 1


def test_one_example_is_an_ordinary_capture() -> None:
    assert trace(gate, examples=[((torch.ones(3),), {})]).code == trace(gate, torch.ones(3)).code


def test_captures_share_modules_and_constants() -> None:
    table = torch.arange(3.0)

    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.linear = nn.Linear(3, 3)

        def forward(self, x: torch.Tensor, again: bool = False) -> torch.Tensor:
            y = self.linear(x) + table
            return self.linear(y) * torch.tensor([1.0, 2.0, 3.0]) if again else y

    model = Model()
    x = torch.randn(2, 3)
    gm = trace(model, examples=[((x,), {}), ((x,), {"again": True})])
    assert isinstance(gm, Model) and gm.state_dict().keys() == model.state_dict().keys()
    assert gm.linear.weight is model.linear.weight
    for again in (False, True):
        torch.testing.assert_close(gm(x, again), model(x, again))
    gm.to(torch.float64)
    torch.testing.assert_close(gm(x.double(), True), copy.deepcopy(model).double()(x.double(), True))


def test_three_and_more_captures_choose_too() -> None:
    def power(x: torch.Tensor, kind: str) -> torch.Tensor:
        return {"a": x, "b": x * x, "c": -x, "d": x + 1}[kind]

    x = torch.randn(3)
    gm = trace(power, examples=[((x, kind), {}) for kind in "abcd"])
    for kind in "abcd":
        assert torch.equal(gm(x, kind), power(x, kind))
        assert torch.equal(Interpreter(gm).run(x, kind), power(x, kind))
    with pytest.raises(GuardError, match=r"(?s)capture 4: argument 'kind' was 'd' .* now it is 'e'.*, 'e'\), \{\}\)\]"):
        gm(x, "e")


def test_training_flags_and_gradients_pass_through() -> None:
    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.linear, self.drop = nn.Linear(3, 3), nn.Dropout(0.5)

        def forward(self, x: torch.Tensor, mask: torch.Tensor | None = None) -> torch.Tensor:
            x = self.drop(self.linear(x))
            return x if mask is None else x * mask

    model = Model()
    x, mask = torch.randn(2, 3), torch.rand(3)
    gm = trace(model, examples=[((x,), {}), ((x, mask), {})])
    report = graphwright.verify(model, gm, [((x,), {}), ((x, mask), {})], modes=("train", "eval"), grads=True)
    assert report.ok, str(report)


# ---- several entry points


def test_entry_points_are_captured_together() -> None:
    model = Coder().eval()
    gm = coder(model)
    assert isinstance(gm, Coder) and gm.graphs.names == ["forward", "encode", "decode", "distance"]
    torch.testing.assert_close(gm(X, scale=3.0), model(X, scale=3.0))
    torch.testing.assert_close(gm.encode(X, 0.5), model.encode(X, 0.5))
    torch.testing.assert_close(gm.decode(code=CODE), model.decode(CODE))
    torch.testing.assert_close(gm.distance(X, X + 1), model.distance(X, X + 1))
    torch.testing.assert_close(gm.doubled(X), model.doubled(X))  # itself not captured, it calls what is
    assert gm.calls is model.calls
    for name in ("forward", "encode", "decode", "distance"):
        assert inspect.signature(getattr(gm, name)) == inspect.signature(getattr(model, name))
        assert f"def {name}(self" in gm.code
    assert gm.encode.__code__.co_filename.startswith("<graphwright Coder.encode")


def test_an_uncaptured_method_that_calls_an_entry_point_runs_its_graph() -> None:
    gm = coder(Coder().eval())
    gm.graphs["encode"].find_nodes(op="call_module", target="norm")[0].replace_all_uses_with(
        gm.graphs["encode"].find_nodes(op="call_module", target="inner")[0]
    )
    torch.testing.assert_close(gm.doubled(X), gm.inner(X) * 2)
    torch.testing.assert_close(gm(X), gm.outer(gm.norm(gm.inner(X))))  # the graph of forward is another


def test_a_module_with_several_entry_points_has_no_one_graph() -> None:
    gm = coder(Coder())
    for read in (lambda: gm.graph, lambda: graphwright.graph(gm), lambda: Interpreter(gm)):
        with pytest.raises(GraphError, match="a graph for each of its entry points forward, encode, decode, distance"):
            read()
    assert torch.equal(Interpreter(gm, graph=gm.graphs["decode"]).run(CODE), gm.decode(CODE))


def test_forward_is_not_run_uncaptured() -> None:
    gm = trace(Coder(), methods={"encode": X})
    assert gm.graphs.names == ["forward", "encode"]
    assert gm.encode(X).shape == (5, 3)
    with pytest.raises(GuardError, match=r"Coder.forward was not captured[^~]*methods=\{'forward': \(args, kwargs\)"):
        gm(X)
    with pytest.raises(TypeError, match="unexpected keyword argument 'scala'"):
        gm(X, scala=2)


def test_entry_points_may_have_several_examples() -> None:
    class Model(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.step(x) + 1

        def step(self, x: torch.Tensor, state: torch.Tensor | None = None) -> torch.Tensor:
            return x if state is None else x + state * torch.tensor(2.0)

    model = Model()
    x = torch.randn(3)
    gm = trace(model, methods={"step": [((x,), {}), ((x, x), {})], "forward": x})
    assert gm.graphs.names == ["forward", "step_1", "step_2"]
    assert torch.equal(gm.step(x), x) and torch.equal(gm.step(x, state=x), model.step(x, x))
    with pytest.raises(GuardError, match=r"no capture of Model\.step covers this call"):
        gm.step(x, 3)


def test_hooks_of_the_module_itself_run_once() -> None:
    model = nn.Sequential(nn.Linear(3, 3))
    model.register_forward_hook(lambda module, args, output: output + 1)
    model.register_forward_pre_hook(lambda module, args: (args[0] * 2,))
    x = torch.randn(2, 3)
    torch.testing.assert_close(trace(model, x)(x), model(x))


def test_a_method_is_captured_with_its_modules() -> None:
    model = Coder().eval()
    model.register_forward_hook(lambda module, args, output: output + 1)  # not of `encode`
    gm = trace(model.encode, X)
    assert not isinstance(gm, Coder) and gm.inner.weight is model.inner.weight
    assert {name for name, _ in gm.named_parameters()} == {name for name, _ in model.named_parameters()}
    torch.testing.assert_close(gm(X, scale=3.0), model.encode(X, scale=3.0))
    assert inspect.signature(gm.forward) == inspect.signature(model.encode)


# ---- copies and files

COPIES: list[Any] = [
    pytest.param(copy.deepcopy, id="deepcopy"),
    pytest.param(copy.copy, id="copy"),
    pytest.param(lambda gm: pickle.loads(pickle.dumps(gm)), id="pickle"),
]


@pytest.mark.parametrize("copied", COPIES)
def test_copies_keep_all_graphs(copied: Callable[[Any], Any]) -> None:
    model = Coder().eval()
    gm = coder(model)
    again = copied(gm)
    assert again.graphs.names == gm.graphs.names and again.code == gm.code
    torch.testing.assert_close(again(X), model(X))
    torch.testing.assert_close(again.encode(X, 2.0), model.encode(X, 2.0))
    assert inspect.signature(again.encode) == inspect.signature(model.encode)
    again.graphs["decode"].find_nodes(op="call_module")[0].replace_all_uses_with(
        again.graphs["decode"].find_nodes(op="placeholder")[0]
    )
    assert torch.equal(again.decode(CODE), CODE)
    torch.testing.assert_close(gm.decode(CODE), model.decode(CODE))


@pytest.mark.parametrize("copied", COPIES)
def test_copies_keep_all_captures(copied: Callable[[Any], Any]) -> None:
    gm = copied(both())
    x, mask = torch.randn(4), torch.randn(4)
    assert torch.equal(gm(x), gate(x)) and torch.equal(gm(x, mask), gate(x, mask))
    gm.graphs[1].find_nodes(op="call_method")[0].target = "neg"
    assert torch.equal(gm(x), gate(x)) and torch.equal(gm(x, mask), -(x * mask))
    assert inspect.signature(gm.forward) == inspect.signature(gate)


def test_files_keep_all_graphs(tmp_path: Path) -> None:
    model = Coder().eval()
    gm = coder(model)
    assert graphwright.save(gm, tmp_path / "coder.gw", strict=True) == []
    again: Any = graphwright.load(tmp_path / "coder.gw", allow=[__name__])
    assert isinstance(again, Coder) and again.graphs.names == gm.graphs.names and again.code == gm.code
    torch.testing.assert_close(again(X), model(X))
    torch.testing.assert_close(again.encode(X, 2.0), model.encode(X, 2.0))

    choosing = both()
    assert graphwright.save(choosing, tmp_path / "gate.gw", strict=True) == []
    again = graphwright.load(tmp_path / "gate.gw")
    x, mask = torch.randn(4), torch.randn(4)
    assert torch.equal(again(x), gate(x)) and torch.equal(again(x, mask), gate(x, mask))
    with pytest.raises(GuardError, match="no capture of gate covers this call"):
        again(x, 3)


def test_a_package_keeps_all_captures(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    both().to_folder(tmp_path / "gate_package", "Gate")
    monkeypatch.syspath_prepend(str(tmp_path))
    from gate_package import Gate  # type: ignore[import-not-found]

    x, mask = torch.randn(4), torch.randn(4)
    assert torch.equal(Gate()(x), gate(x)) and torch.equal(Gate()(x, mask), gate(x, mask))

    gm = coder(Coder().eval())
    gm.to_folder(tmp_path / "coder_package", "Written")
    from coder_package import Written  # type: ignore[import-not-found]

    written = Written().eval()
    torch.testing.assert_close(written(X), gm(X))
    torch.testing.assert_close(written.encode(X, 2.0), gm.encode(X, 2.0))
    torch.testing.assert_close(written.decode(CODE), gm.decode(CODE))


def test_state_modes_and_moves_reach_all_graphs() -> None:
    gm = coder(Coder())
    assert gm.training and not gm.eval().norm.training
    gm.load_state_dict({name: torch.ones_like(value) for name, value in gm.state_dict().items()})
    assert gm.encode(torch.ones(2, 4)).dtype == torch.float32
    assert gm.to(torch.float64).encode(torch.ones(2, 4, dtype=torch.float64)).dtype == torch.float64


def test_a_module_with_several_entry_points_is_captured_again() -> None:
    gm = coder(Coder().eval())
    again = trace(gm, methods={"forward": X, "encode": X})
    torch.testing.assert_close(again.encode(X), gm.encode(X))
    torch.testing.assert_close(again(X), gm(X))


# ---- what is asked for wrongly

WRONG: list[Any] = [
    pytest.param(lambda: trace(gate, torch.ones(3), examples=[]), "args and examples", id="two ways"),
    pytest.param(lambda: trace(gate, examples=[]), "examples is empty", id="no examples"),
    pytest.param(lambda: trace(gate, examples=[3]), r"examples\[0\] is no example", id="no example"),
    pytest.param(lambda: trace(gate, examples=[((T,),)]), r"examples\[0\] is no example", id="no kwargs"),
    pytest.param(lambda: trace(gate, "x"), "args is a str", id="no tuple"),
    pytest.param(lambda: trace(gate, methods={"forward": T}), "methods names entry points of a module", id="function"),
    pytest.param(lambda: trace(Coder(), methods={}), "methods is empty", id="no methods"),
    pytest.param(lambda: trace(Coder(), methods={"code": T}), "Coder has no method 'code'", id="no such method"),
    pytest.param(lambda: trace(Coder(), methods={"inner": X}), "'inner' of Coder is no entry point", id="a module"),
    pytest.param(lambda: trace(Coder(), methods={"train": ((), {})}), "'train' of Coder is no entry", id="torch's own"),
]


@pytest.mark.parametrize(("wrong", "message"), WRONG)
def test_what_cannot_be_captured_is_said(wrong: Callable[[], Any], message: str) -> None:
    with pytest.raises(CaptureError, match=message):
        wrong()


def last(x: torch.Tensor, keep: Any = 0, scale: Any = 2) -> torch.Tensor:
    items = slice(-keep, None) if isinstance(keep, int) else keep
    return x[:, items] * (scale if type(scale) is int else 1)


def test_a_capture_with_guards_on_classes_of_numbers_is_captured_again() -> None:
    x = torch.ones(2, 4)
    again = graphwright.trace(graphwright.trace(last, (x,)), (x,))
    for keep in (0, 1, 3):
        assert torch.equal(again(x, keep, 5), last(x, keep, 5))
    for other in ((torch.tensor([0]),), (0, 2.5)):
        with pytest.raises(GuardError, match="was of class int"):
            again(x, *other)


class Counts(nn.Module):
    """Makes up for missing arguments before its hooks and `forward`, as layers of graph networks do."""

    def __init__(self) -> None:
        super().__init__()
        self.calls = 0

    def __call__(self, x: torch.Tensor, index: torch.Tensor, size: int | None = None) -> torch.Tensor:
        self.calls += 1
        if size is None:
            size = int(index.max()) + 1
        return super().__call__(x, index, size=size)  # type: ignore[no-any-return]

    def forward(self, x: torch.Tensor, index: torch.Tensor, size: int) -> torch.Tensor:
        return torch.zeros(size, x.shape[1]).index_add(0, index, x)


@pytest.mark.parametrize(
    "example", [(torch.ones(3, 2), torch.tensor([0, 1, 1])), (torch.ones(1, 2), torch.zeros(1).long(), 3)]
)
def test_a_class_with_a_call_of_its_own_says_what_forward_gets(example: Any) -> None:
    model = Counts()
    hooked = []
    model.register_forward_pre_hook(lambda module, args: hooked.append(args))
    gm = trace(model, example)
    assert model.calls == 0 and "forward" not in vars(model)
    x, index = torch.randn(4, 2), torch.tensor([4, 0, 0, 1])
    assert torch.equal(gm(x, index), model(x, index)) and torch.equal(gm(x, index, 7), model(x, index, 7))


def test_arguments_of_forward_itself_are_taken() -> None:
    class Hides(nn.Module):
        def __call__(self, x: torch.Tensor) -> torch.Tensor:
            return super().__call__(x, 2)  # type: ignore[no-any-return]

        def forward(self, x: torch.Tensor, by: int) -> torch.Tensor:
            return x * by

    for example in [(torch.ones(2),), (torch.ones(2), 5)]:
        assert trace(Hides(), example)(torch.ones(3)).tolist() == [2.0, 2.0, 2.0]


class Masked(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(3, 3)

    def forward(self, x: torch.Tensor, mask: torch.Tensor | None = None, scale: float = 1.0) -> torch.Tensor:
        y = self.linear(x)
        return y * scale if mask is None else y * mask * scale


def test_a_module_that_is_given_some_arguments_takes_the_others() -> None:
    x = torch.ones(2, 3)
    program = functools.partial(Masked(), mask=x * 2)
    gm = trace(program, x)
    assert [*inspect.signature(gm.forward).parameters] == ["x", "mask", "scale"]
    assert torch.equal(gm(x=x), program(x))
    assert torch.equal(gm(x, mask=x, scale=3.0), program(x, mask=x, scale=3.0))


class WrapsItsMethods(nn.Module):
    """Has a method of its own in the place of its class's, and looks for all that it has."""

    def __init__(self) -> None:
        super().__init__()
        self.calls = 0
        self.update = self._counted(self.update)  # type: ignore[method-assign]

    def _counted(self, function: Any) -> Any:
        @functools.wraps(function)
        def counted(*args: Any) -> Any:
            self.calls += 1
            return function(*args)

        return counted

    def update(self, x: torch.Tensor) -> torch.Tensor:
        return x * len([name for name in self.__dict__ if name.startswith("ca")])


def test_a_method_that_a_module_has_as_its_own_is_there_once_it_is_captured() -> None:
    gm = trace(WrapsItsMethods(), methods={"update": ((torch.ones(2),), {})})
    assert torch.equal(gm.update(torch.ones(3)), torch.ones(3)) and gm.calls == 1
    gm.cache = 3
    with pytest.raises(GuardError, match="has got cache"):
        gm.update(torch.ones(3))
