"""torch.export takes captured modules, branches and loops on data included, and no size is fixed that none fixes."""

from __future__ import annotations

import collections
import copy
import pickle
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.utils.checkpoint
from tests.passes.zoo_models import zoo_model
from tests.runtime.declare_torchvision import declare_torchvision
from torch import Tensor, nn
from torch.utils import _pytree as pytree

import graphwright
from graphwright import from_export, to_export, trace
from graphwright.errors import ExportError, GuardError


def one_of_two(x: Tensor) -> Tensor:
    return x * 2 if x.sum() > 0 else x


def number_of_two(x: Tensor) -> Tensor:
    factor = 1 if x.sum() > 0 else 2
    return x * factor


def size_of_two(x: Tensor) -> Tensor:
    return x + 1 if x.shape[0] > 4 else x - 1


def early(x: Tensor) -> Tensor:
    if x.sum() > 0:
        return x
    x = x * 2
    if x.sum() < -5:
        return x - 1
    return x + 3


class Layers(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear, self.cell = nn.Linear(3, 3), nn.GRUCell(3, 3)
        self.register_buffer("calls", torch.zeros((), dtype=torch.int64))


class Filled(Layers):
    def forward(self, x: Tensor) -> Tensor:
        out = torch.zeros(8, 3)
        if x.sum() > 0:
            self.calls.add_(1)
        for i in range(x.shape[0]):
            out[i] = x[i] * self.calls
        return out


class Unbroken(Layers):
    def forward(self, x: Tensor) -> Tensor:
        while True:
            x = x.abs() * 2
            if x.sum() > 50:
                break
        return x


class Branch(Layers):
    def forward(self, x: Tensor) -> Tensor:
        h = self.linear(x)
        h = self.linear(h).relu() if h.sum() > 0 else h - 1
        return h + 1


class Halved(Layers):
    def forward(self, x: Tensor) -> Tensor:
        while x.norm() > 1:
            x = x * 0.5
        return x


class Counted(Layers):
    def forward(self, x: Tensor) -> tuple[Tensor, int]:
        n = 0
        while x.abs().sum() < 100:
            x = x * 2
            n = n + 1
            if n > 5:
                break
        return x, n


class Rows(Layers):
    def forward(self, x: Tensor) -> Tensor:
        h = torch.zeros(1, 3)
        for row in x:
            h = self.cell(row[None], h)
        return h


class Indexed(Layers):
    def forward(self, x: Tensor) -> Tensor:
        total = torch.zeros(3)
        for i in range(1, x.shape[0], 2):
            total = total + (self.linear(x[i]) if x[i].sum() > 0 else x[i - 1] * i)
        return total


class Counting(Layers):
    def forward(self, x: Tensor) -> Tensor:
        self.calls += 1
        return x * self.calls


class Smoothed(Layers):
    def forward(self, x: Tensor) -> Tensor:
        self.calls = self.calls + x.shape[0]
        return x + self.calls


def zipped(x: Tensor) -> Tensor:
    total = torch.zeros(3)
    for one, other in zip(x, x * 2, strict=False):
        total = total + one * other
    return total


def enumerated(x: Tensor) -> Tensor:
    total = torch.zeros(3)
    for i, (row, other) in enumerate(zip(x, x * 2, strict=False), start=1):
        total = total + row * i - other
    return total


def stacked(x: Tensor) -> tuple[Tensor, Tensor, int]:
    rows, sums = [], []
    h = torch.zeros(3)
    for row in x:
        h = torch.tanh(h + row)
        rows.append(h * 2 if row.sum() > 0 else h)
        sums.append(row[None, :2])
    return torch.stack(rows, -1), torch.cat(sums, dim=1), len(rows)


def of_numbers(x: Tensor) -> Tensor:
    out = []
    for i in range(1, x.shape[0] + 1):
        out.append(x[i - 1] * i)
    return torch.cat(out)


PROGRAMS = [
    zipped,
    enumerated,
    stacked,
    of_numbers,
    one_of_two,
    number_of_two,
    size_of_two,
    early,
    Branch,
    Filled,
    Unbroken,
    Halved,
    Counted,
    Rows,
    Indexed,
    Counting,
    Smoothed,
]


@pytest.mark.sampled(3)
@pytest.mark.parametrize("program", PROGRAMS, ids=lambda program: program.__name__)
def test_exported_programs_do_what_the_original_does(program: Any) -> None:
    torch.manual_seed(0)
    original = program() if isinstance(program, type) else program
    calls = [torch.randn(rows, 3) * 2 for rows in (5, 2, 3, 4, 8, 1)]
    gm = trace(copy.deepcopy(original), (calls[0],))
    exported = to_export(gm, calls[0]).module()
    if isinstance(original, nn.Module):
        assert all(torch.equal(one, other) for one, other in zip(gm.buffers(), original.buffers(), strict=True))
    for x in calls:
        wanted, given = [pytree.tree_leaves(one(x.clone())) for one in (original, exported)]
        for one, other in zip(wanted, given, strict=True):
            torch.testing.assert_close(torch.as_tensor(other), torch.as_tensor(one))


def strictly(x: Tensor, y: Tensor) -> Tensor:
    total = torch.zeros(3)
    for one, other in zip(x, y, strict=True):
        total = total + one * other
    return total


def test_what_a_strict_zip_goes_over_is_equally_long() -> None:
    args = torch.ones(4, 3), torch.ones(4, 3)
    exported = to_export(trace(strictly, args), args).module()
    assert torch.equal(exported(torch.ones(2, 3), torch.ones(2, 3)), torch.full((3,), 2.0))
    with pytest.raises(Exception, match=r"2|5|Guard"):
        exported(torch.ones(2, 3), torch.ones(5, 3))


def test_names_of_parameters_and_guards_stay() -> None:
    class Sized(Layers):
        def forward(self, x: Tensor, mask: Tensor | None = None) -> Tensor:
            parts = [x] * x.shape[1]
            return self.linear(torch.stack(parts).sum(0))

    exported = to_export(trace(Sized(), (torch.randn(4, 3),)), torch.randn(4, 3))
    assert "linear.weight" in exported.state_dict
    assert exported.module()(torch.randn(7, 3)).shape == (7, 3)
    with pytest.raises(Exception, match=r"3|Guard"):
        exported.module()(torch.randn(4, 5))


def checked(x: Tensor) -> Tensor:
    if x.sum() < 0:
        raise ValueError("a negative sum")
    return x + 1


def test_what_a_side_raises_for_is_refused_in_the_exported_program() -> None:
    exported = to_export(trace(checked, (torch.ones(3),)), torch.ones(3)).module()
    assert torch.equal(exported(torch.ones(5)), torch.ones(5) + 1)
    with pytest.raises(RuntimeError, match="a negative sum"):
        exported(-torch.ones(5))


def drawing(x: Tensor) -> Tensor:
    while torch.rand(()) > 0.4:
        x = x + 1
    return x


def test_a_test_that_draws_is_asked_as_often_as_in_eager() -> None:
    exported = to_export(trace(drawing, (torch.ones(2),)), torch.ones(2)).module()
    for seed in range(6):
        results = []
        for program in (drawing, exported):
            torch.manual_seed(seed)
            results.append(program(torch.ones(2)))
        assert torch.equal(*results)


def growing(ids: Tensor) -> Tensor:
    for _ in range(4):
        ids = torch.cat([ids, ids[:1] + 1])
        if ids.sum() > 10:
            break
    return ids


def alias_of_one_side(x: Tensor) -> tuple[Tensor, Tensor]:
    y = x if x.sum() > 0 else x * 2
    y += 1
    return x, y


def written_in_the_first_round(x: Tensor) -> Tensor:
    y = x
    while y.sum() < 20:
        y.add_(1)
        y = y * 2
    return y


def listed(x: Tensor) -> Tensor:
    out: list[Tensor] = []
    while x.sum() < 10:
        x = x * 2
        out.append(x)
    return torch.stack(out)


def on_one_side(x: Tensor) -> Tensor:
    out = [x[0]]
    for row in x:
        if row.sum() > 0:
            out.append(row)
    return torch.stack(out)


class Kept(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.steps = 0

    def forward(self, x: Tensor) -> Tensor:
        self.steps += 1
        return x + self.steps


class Fills(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.held = [{"a": torch.zeros(1)}]

    def forward(self, x: Tensor) -> Tensor:
        self.held[0]["a"] = x * 2
        return x + 1


class Queued(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.queue = collections.deque[Tensor](maxlen=3)

    def forward(self, x: Tensor) -> Tensor:
        self.queue.append(x * 2)
        return x + len(self.queue)


class Tallies(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.tally: dict[str, int] = {}
        self.rows: list[Tensor] = []

    def forward(self, x: Tensor) -> Tensor:
        self.tally["calls"] = self.tally.get("calls", 0) + 1
        return x * self.tally["calls"]


class Appends(Tallies):
    def forward(self, x: Tensor) -> Tensor:
        rows = self.rows
        for row in x:
            rows.append(row * 2)
        return x + 1


class Grouped(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.groups: dict[str, list[int]] = {}

    def forward(self, x: Tensor) -> Tensor:
        self.groups.setdefault("b", []).append(1)
        return x + len(self.groups["b"])


RESULTS: list[Tensor] = []


def to_a_global_list(x: Tensor) -> Tensor:
    RESULTS.append(x)
    return x + len(RESULTS)


def of_one_size(x: Tensor) -> Tensor:
    if x.shape[2] != 8:
        x = torch.nn.functional.interpolate(x, (8, 8))
    torch._assert(x.shape[2] == 8, "a size")
    return x.flatten(1) * 2


@pytest.mark.slow
@pytest.mark.parametrize("seconds", [20.0, -10.0])
def test_sizes_that_torch_export_cannot_keep_open_are_fixed(
    seconds: float, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys.modules["graphwright.interop.patience"], "_SECONDS", seconds)
    x = torch.ones(2, 3, 8, 8)
    gm = trace(of_one_size, (x,))
    kept = "the first size of each tensor is open" if seconds > 0 else "no size is open"
    with pytest.warns(UserWarning, match=rf"cannot take the program: .*\n  so {kept}"):
        exported = to_export(gm, x)
    given = torch.randn(5 if seconds > 0 else 2, 3, 8, 8)
    assert torch.equal(exported.module()(given), of_one_size(given))
    with pytest.raises(ExportError, match="cannot take the program: GuardOnDataDependent"):
        to_export(gm, x, dynamic_shapes=({2: torch.export.Dim.AUTO},))
    assert "def forward" not in capfd.readouterr().err


@pytest.mark.parametrize(
    ("program", "message"),
    [
        pytest.param(growing, r"at .*in growing: for _ in range\(4\)", id="a shape that grows"),
        pytest.param(on_one_side, r"adds to a list", id="a list that one side adds to"),
        pytest.param(listed, r"adds to a list that is around it.*\n  at .*in listed: while", id="a list"),
        pytest.param(alias_of_one_side, r"write to a copy", id="a write to one of two that may be one"),
        pytest.param(lambda x: by_two_names(x), r"also reads by another name", id="a write by another name"),
        pytest.param(written_in_the_first_round, r"write to a copy", id="a write to what is carried"),
        pytest.param(Kept(), "keeps nothing in 'steps' from call to call", id="a number of a module"),
        pytest.param(Fills(), "keeps nothing in 'held' from call to call", id="a list of a module"),
        pytest.param(Queued(), "keeps nothing in 'queue' from call to call", id="a deque of a module"),
        pytest.param(Tallies(), "keeps nothing in 'tally'", id="a dict of a module that may have a key"),
        pytest.param(Grouped(), "keeps nothing in 'groups'", id="a list in a dict of a module"),
        pytest.param(Appends(), "keeps nothing in 'rows'", id="a list of a module that a loop fills"),
        pytest.param(to_a_global_list, "keeps nothing in 'RESULTS'", id="a global list"),
        pytest.param(
            lambda x: torch.func.grad(lambda v: (v**3).sum())(x) + torch.vmap(torch.sin)(x),
            "lost how|cannot take the program",
            id="a gradient inside",
        ),
    ],
)
def test_what_torch_export_cannot_say_is_refused(program: Any, message: str) -> None:
    x = torch.ones(3, 2) if program is not growing else torch.ones(2)
    gm = trace(program, (x,))
    with pytest.raises(ExportError, match=message):
        to_export(gm, x)
    assert not any(isinstance(value, torch._subclasses.FakeTensor) for value in pytree.tree_leaves(vars(gm)))


def asks_class(x: Tensor) -> Tensor:
    return x * {Tensor: 2, nn.Parameter: 3}[type(x)]


def test_stand_ins_of_torch_are_of_the_class_for_which_they_stand() -> None:
    x = torch.ones(3, 2)
    assert torch.equal(to_export(trace(asks_class, (x,)), x).module()(x), x * 2)


# ---- from torch.export


@pytest.mark.slow
@pytest.mark.sampled(5)
@pytest.mark.parametrize("unflatten", [True, False])
@pytest.mark.parametrize("program", PROGRAMS, ids=lambda program: program.__name__)
def test_exported_programs_come_back(program: Any, unflatten: bool) -> None:
    torch.manual_seed(0)
    original = program() if isinstance(program, type) else program
    calls = [torch.randn(rows, 3) * 2 for rows in (5, 2, 3, 4, 8, 1)]
    exported = to_export(trace(copy.deepcopy(original), (calls[0],)), calls[0])
    gm = from_export(exported, unflatten)
    targets = {node.target for node in gm.graph.all_nodes()}
    assert not targets & {torch.ops.higher_order.cond, torch.ops.higher_order.while_loop}
    for x in calls:
        wanted, given = [pytree.tree_leaves(one(x.clone())) for one in (original, gm)]
        for one, other in zip(wanted, given, strict=True):
            torch.testing.assert_close(torch.as_tensor(other), torch.as_tensor(one))


class Nested(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.rest = Branchless(), nn.Sequential(Branchless(), nn.Linear(3, 2))

    def forward(self, values: dict[str, list[Tensor]], *, shift: Tensor | None = None) -> dict[str, Any]:
        x, y = values["pair"]
        z = self.rest(self.first(x) + y)
        return {"z": z if shift is None else z + shift, "parts": (x, [y])}


class Branchless(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(3, 3)

    def forward(self, x: Tensor) -> Tensor:
        return self.linear(x).relu()


def test_modules_structures_and_checks_come_back() -> None:
    model = Nested().eval()
    given, shift = {"pair": [torch.randn(4, 3), torch.randn(4, 3)]}, torch.ones(2)
    exported = torch.export.export(model, (given,), {"shift": shift})
    gm = from_export(exported)
    assert [type(child).__name__ for child in gm.children()][:2] == ["Branchless", "Sequential"]
    assert [*gm.state_dict()] == [*model.state_dict()]
    assert torch.equal(gm.get_parameter("rest.1.weight"), model.get_parameter("rest.1.weight"))
    wanted, result = model(given, shift=shift), gm(given, shift=shift)
    assert pytree.tree_structure(wanted) == pytree.tree_structure(result)
    for one, other in zip(pytree.tree_leaves(wanted), pytree.tree_leaves(result), strict=True):
        torch.testing.assert_close(other, one)
    with pytest.raises(Exception, match=r"4|Guard"):
        gm({"pair": [torch.randn(5, 3), torch.randn(5, 3)]}, shift=shift)
    with pytest.raises(Exception, match=r"pair|structure|length"):
        gm({"pair": [torch.randn(4, 3)] * 3}, shift=shift)


class Twice(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inner = Branchless()

    def forward(self, x: Tensor) -> Tensor:
        return self.inner(x) + self.inner(x[0])


def test_a_module_that_is_called_in_two_ways() -> None:
    x = torch.randn(4, 3)
    exported = torch.export.export(Twice(), (x,))
    torch.testing.assert_close(from_export(exported, unflatten=False)(x), exported.module()(x))
    torch.testing.assert_close(from_export(exported)(x), exported.module()(x))


class Zeroed(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        x = x * torch.tensor([1.0, 2.0, 3.0])
        x[:, 0] = 0
        return x


def test_constants_of_the_program_and_of_its_modules_come_back() -> None:
    x = torch.randn(4, 3)
    for model in (Zeroed(), nn.Sequential(nn.Linear(3, 3), nn.Sequential(Zeroed(), Zeroed()))):
        gm = from_export(torch.export.export(model, (x,)))
        torch.testing.assert_close(copy.deepcopy(gm)(x), model(x))


class Checkpointed(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Sequential(nn.Linear(3, 3), nn.GELU(), nn.Linear(3, 3))

    def forward(self, x: Tensor) -> Tensor:
        return torch.utils.checkpoint.checkpoint(self.inner, x, use_reentrant=False) + x  # type: ignore[no-any-return]


def test_modules_that_are_called_by_the_path_of_another() -> None:
    x = torch.randn(4, 3)
    model = Checkpointed()
    gm = from_export(to_export(trace(model, (x,)), x))
    torch.testing.assert_close(gm(x), model(x))


@pytest.mark.slow
@pytest.mark.parametrize("name", ["bert", "gpt2", "llama"])
def test_language_models_at_other_batches_and_lengths(name: str) -> None:
    declare_torchvision()
    model, ids = zoo_model("transformers", name)
    model.eval()
    with pytest.warns(UserWarning, match="are constants of the exported program"):  # the scale of attention
        program = to_export(trace(model, (ids,), target="export"), ids)
    exported, back = program.module(), from_export(program, unflatten=False)
    for batch, length in ((2, 7), (3, 5), (5, 9)):
        other = torch.randint(0, 99, (batch, length))
        with torch.no_grad():
            torch.testing.assert_close(exported(other).last_hidden_state, model(other).last_hidden_state)
            torch.testing.assert_close(back(other).last_hidden_state, model(other).last_hidden_state)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::FutureWarning")  # torch's own
@pytest.mark.parametrize("program", [one_of_two, Rows], ids=lambda program: program.__name__)
def test_inductor_compiles_it_ahead_of_time(program: Any, tmp_path: Path) -> None:
    original = program() if isinstance(program, type) else program
    x = torch.randn(5, 3)
    exported = to_export(trace(original, (x,)), x)
    path = torch._inductor.aoti_compile_and_package(exported, package_path=str(tmp_path / "model.pt2"))
    compiled = torch._inductor.aoti_load_package(path)
    for rows in (5, 3, 8):
        x = torch.randn(rows, 3)
        torch.testing.assert_close(compiled(x), original(x))


class Structured(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(3, 3)
        self.register_buffer("calls", torch.zeros(()))

    def forward(self, x: Tensor, named: dict[str, Tensor], n: int = 3, *, flag: bool = True) -> dict[str, Tensor]:
        self.calls += 1
        return {"out": self.linear(x).view(-1, 6) * n + named["y"].sum() + self.calls}


@pytest.mark.parametrize("unflatten", [True, False])
def test_checks_of_torch_export_are_in_the_graph_and_in_files(unflatten: bool, tmp_path: Path) -> None:
    x, named, sizes = torch.randn(4, 3), {"y": torch.ones(2)}, {0: torch.export.Dim.AUTO}
    model = Structured().eval()
    shapes = (sizes, {"y": None}, None, None)
    program = torch.export.export(model, (x, named), {"n": 3, "flag": True}, dynamic_shapes=shapes)
    gm = from_export(program, unflatten)
    assert not gm._forward_pre_hooks and "_guards_fn" not in gm._modules
    graphwright.save(gm, tmp_path / "program.gw")
    modules = [gm, copy.deepcopy(gm), pickle.loads(pickle.dumps(gm)), graphwright.load(tmp_path / "program.gw")]
    for module in modules:
        for given in (x, torch.randn(6, 3)):
            calls = module.get_buffer("calls").clone()
            expected = model.linear(given).view(-1, 6) * 3 + 2 + calls + 1
            torch.testing.assert_close(module(given, named, n=3, flag=True)["out"], expected)
        for args, n in (((torch.randn(5, 3), named), 3), ((x, named), 4), ((x, {"y": torch.ones(3)}), 3)):
            with pytest.raises(AssertionError, match="Guard failed"):
                module(*args, n=n, flag=True)
        with pytest.raises(GuardError, match="the length of named"):
            module(x, {**named, "z": x}, n=3, flag=True)


def test_what_is_no_program_of_torch_export_is_refused() -> None:
    with pytest.raises(ExportError, match="a ReLU is no program"):
        from_export(nn.ReLU())  # type: ignore[arg-type]


def of_two_branches(x: Tensor) -> Tensor:
    out = x * 1
    if x.sum() > 0:
        kept = nn.functional.dropout(out, 0.1, training=False)
        if x.mean() > 0.5:
            kept.add_(1)
    return out


def of_a_loop_in_a_branch(x: Tensor) -> Tensor:
    out = torch.zeros_like(x)
    if x.sum() > 0:
        for i in range(x.size(0)):
            out[i] = x[i] * 2
    return out


def of_a_branch_in_a_loop(x: Tensor) -> Tensor:
    out, total = torch.zeros_like(x), torch.zeros(x.size(1))
    for i, row in enumerate(x):
        scaled = row * 1
        if row.sum() > 0:
            out[i] = row * 2
            scaled.mul_(2)
        total = total + scaled
    return out + total


def of_a_branch_in_a_while(x: Tensor) -> Tensor:
    n, y = 0, x * 1
    while y.sum() < 20 and n < 5:
        z = y * 1
        if z.mean() > 0:
            z.add_(1)
        y, n = z, n + 1
    return y


@pytest.mark.filterwarnings("ignore:.*LeafSpec:FutureWarning")  # torch's own decomposition
@pytest.mark.sampled(2)
@pytest.mark.parametrize("is_decomposed", [False, True])
@pytest.mark.parametrize(
    "program", [of_two_branches, of_a_loop_in_a_branch, of_a_branch_in_a_loop, of_a_branch_in_a_while]
)
def test_writes_of_bodies_inside_of_others_are_not_lost(program: Any, is_decomposed: bool) -> None:
    x = torch.ones(2, 3)
    exported = to_export(trace(program, (x,)), x)
    if is_decomposed and program is not of_a_branch_in_a_loop:  # whose index torch cannot decompose
        exported = exported.run_decompositions()
    for given in (x, -x, torch.randn(5, 3)):
        torch.testing.assert_close(exported.module()(given), program(given))


@pytest.mark.filterwarnings("ignore:.*LeafSpec:FutureWarning")  # torch's own decomposition
@pytest.mark.parametrize("is_decomposed", [False, True])
def test_dropouts_that_are_off_give_what_they_are_given(is_decomposed: bool) -> None:
    def program(x: Tensor) -> Tensor:
        x = x * 1.5
        kept = nn.functional.dropout(x, 0.1, training=False)
        x.add_(1)
        return kept * 2

    exported = to_export(trace(program, (torch.ones(2, 3),)), torch.ones(2, 3))
    exported = exported.run_decompositions() if is_decomposed else exported
    torch.testing.assert_close(exported.module()(torch.ones(2, 3)), program(torch.ones(2, 3)))


def by_two_names(x: Tensor) -> Tensor:
    out = x * 1
    view = out[0]
    if x.mean() > 0:
        view.add_(1)
        out = out * 2
    return out


class PlainTensors(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.shift, self.count = torch.ones(2), torch.zeros(2)

    def forward(self, x: Tensor) -> Tensor:
        if x.sum() > 0:
            x = x + self.shift
            if x.sum() > 10:
                x = x * self.shift * 2
            self.count.add_(1)
        else:
            self.count.mul_(2)
        return x * self.shift + self.count


def test_a_plain_tensor_of_a_module_is_used_on_a_side_and_after_it() -> None:
    exported, model = to_export(trace(PlainTensors(), (torch.ones(2),)), torch.ones(2)).module(), PlainTensors()
    for value in (1.0, -1.0, 9.0, 1.0, -1.0):
        x = torch.full((2,), value)
        assert torch.equal(exported(x), model(x))


def last_two(x: Tensor) -> Tensor:
    kept = collections.deque[Tensor](maxlen=2)
    for row in x:
        kept.append(row)
    return torch.stack(list(kept)).sum(0)


def test_a_deque_that_drops_what_a_loop_gives_it_is_refused() -> None:
    gm = trace(last_two, (torch.ones(3, 2),))
    with pytest.raises(ExportError, match="adds to a deque with a maxlen"):
        to_export(gm, torch.ones(3, 2))
