"""Lists of tensors among the inputs may be longer or shorter in another run; and items that are lists and dicts."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from graphwright import CaptureError, GuardError, load, save, symbolic_trace, trace, verify


def means(xs: Any) -> Any:
    return [x.mean() for x in xs]


def joined(xs: Any) -> Any:
    return torch.cat(xs), len(xs), xs


def changed(xs: Any) -> Any:
    xs[0] = xs[0] + 1
    xs.append(xs[-1] * 2)
    return torch.stack(xs)


def by_index(xs: Any) -> Any:
    out = []
    for i in range(len(xs)):
        x = xs[i]
        out.append(x * i)
    return out


def sizes(xs: Any) -> Any:
    found = []
    for x in xs:
        found.append(x.shape)
    return found


def padded(xs: Any) -> Any:
    longest = max(x.shape[0] for x in xs)
    batch = xs[0].new_zeros(len(xs), longest, 3)
    for i in range(len(xs)):
        batch[i, : xs[i].shape[0]].copy_(xs[i])
    return batch


def described(xs: Any) -> Any:
    found = []
    for x in xs:
        found.append({"mean": x.mean(), "rows": x.shape[0], "pair": [x[0], x.sum(0)]})
    for one in found:
        one["mean"] = one["mean"] * 2
        one["pair"][1] = one["pair"][0] - 1
    return found, found[0]["mean"], list(found[0].items())[1]


def asks(xs: Any) -> Any:
    return [x.double() if x.dtype == torch.float32 else x for x in xs]


PROGRAMS = [means, joined, changed, by_index, sizes, padded, described, asks]


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda program: program.__name__)
def test_a_list_of_tensors_has_as_many_as_a_run_passes(program: Callable[..., Any], tmp_path: Any) -> None:
    gm = trace(program, ([torch.randn(2, 3), torch.randn(2, 3)],))
    save(gm, tmp_path / "program.gw")
    loaded = load(tmp_path / "program.gw", allow=[__name__])
    for count in (2, 3, 1):
        xs = [torch.randn(2, 3) for _ in range(count)]
        for captured in (gm, loaded):
            report = verify(program, captured, [(xs,)])
            assert report.ok, f"{report}\n{gm.code}"


def test_items_differ_in_size() -> None:
    gm = trace(padded, ([torch.randn(2, 3), torch.randn(4, 3)],))
    xs = [torch.randn(rows, 3) for rows in (5, 1, 3)]
    assert torch.equal(gm(xs), padded(xs))


def test_what_was_asked_of_the_items_is_guarded() -> None:
    gm = trace(asks, ([torch.randn(2, 3), torch.randn(2, 3)],))
    assert [guard.what for guard in gm.guards] == ["xs is a list of torch.float32 tensors"]
    message = r"argument 'xs_2' was a torch.float32 tensor .* now it is a torch.float64 tensor"
    with pytest.raises(GuardError, match=message):
        gm([torch.ones(2, 3), torch.ones(2, 3), torch.ones(2, 3).double()])
    with pytest.raises(GuardError, match=r"argument 'xs' was of class list .* now it is Tensor"):
        gm(torch.ones(2, 3))


def picked(names: tuple[float, ...]) -> float:
    return names[int(torch.rand(1).item() * len(names))]


def draws(xs: Any) -> Any:
    found = []
    for x in xs:
        found.append(x * picked((2.0, 3.0)))
    return found


def test_a_question_of_data_in_a_loop_does_not_unroll_it() -> None:
    gm = trace(draws, ([torch.randn(2), torch.randn(2)],))
    assert [entry.text for entry in gm.report.opaque] == []
    report = verify(draws, gm, [([torch.randn(2) for _ in range(count)],) for count in (3, 1)])
    assert report.ok, str(report)


class Pyramid(nn.Module):
    """A layer for each: the list is as long as the example's."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList([nn.Linear(3, 4), nn.Linear(5, 4)])

    def forward(self, xs: list[Tensor]) -> Tensor:
        total = self.layers[0](xs[0]).sum()
        for layer, x in zip(self.layers, xs, strict=False):
            total = total + layer(x).sum()
        return total


def test_a_list_with_a_layer_for_each_item_is_guarded() -> None:
    model = Pyramid()
    gm = trace(model, ([torch.randn(2, 3), torch.randn(2, 5)],))
    xs = [torch.randn(4, 3), torch.randn(1, 5)]
    assert torch.equal(gm(xs), model(xs))
    with pytest.raises(GuardError, match=r"the length of argument 'xs' was 2 when .*; now it is 3"):
        gm([*xs, torch.randn(1, 5)])


# ---- lists and dicts in lists that loops make longer


def grows_an_item(x: Tensor) -> Any:
    out = []
    for row in x:
        item = [row]
        out.append(item)
        item.append(row * 2)
    return out


def changes_one_item_of_all(x: Tensor) -> Any:
    out = []
    item = {"first": x[0]}
    for _ in x:
        out.append(item)
    item["first"] = x[0] * 5
    return out


def changes_by_index(x: Tensor) -> Any:
    out = []
    for row in x:
        out.append([row, {"twice": row * 2}])
    out[0][1]["twice"] = x[0] * 100
    first, held = out[-1]
    return out, first + held["twice"], len(out[0]), [*out[0][1]]


def changes_in_a_loop(x: Tensor) -> Any:
    out = []
    for row in x:
        out.append([row, row * 2])
    for pair in out:
        pair[0] = pair[0] + 7
        pair[1] = pair[0] + pair[1]
    return out


@pytest.mark.parametrize("program", [changes_by_index, changes_in_a_loop])
@pytest.mark.parametrize("capture", [symbolic_trace, lambda program: trace(program, (torch.randn(2, 3),))])
def test_changes_of_items_reach_the_list(program: Callable[..., Any], capture: Callable[..., Any]) -> None:
    gm = capture(program)
    assert not gm.guards
    for count in (2, 3, 1):
        report = verify(program, gm, [torch.randn(count, 3)])
        assert report.ok, f"{report}\n{gm.code}"


@pytest.mark.parametrize("program", [grows_an_item, changes_one_item_of_all])
def test_changes_of_items_by_a_name_of_their_own_are_seen(program: Callable[..., Any]) -> None:
    gm = trace(program, (torch.randn(2, 3),))
    x = torch.randn(2, 3)
    assert verify(program, gm, [x]).ok
    with pytest.raises(GuardError, match="was captured where this was 2; now it is 3"):
        gm(torch.randn(3, 3))
    with pytest.raises(CaptureError, match=r"put into out|that is elsewhere, too"):
        symbolic_trace(copy.copy(program))


def test_a_shorter_list_is_told_by_its_length() -> None:
    gm = trace(lambda x, factors: x * factors[1] if factors[0] == 0 else x, (torch.ones(2), [0, 3]))
    with pytest.raises(GuardError, match=r"the length of argument 'factors' was 2 .*; now it is 1"):
        gm(torch.ones(2), [0])


class Counts(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("calls", torch.zeros(()))

    def forward(self, x: Tensor, pair: list[Tensor]) -> Tensor:
        self.calls += 1
        x = torch.cat([x, pair[1]], dim=-1)
        return x + 1 if pair[1].ndim == 2 else x


def test_a_call_that_is_refused_has_changed_nothing() -> None:
    """What is checked is read before the program's first operation, also where the program reads it after that."""
    model = Counts()
    gm = trace(model, (torch.ones(3), [torch.ones(3), torch.ones(3)]))
    with pytest.raises(GuardError, match="argument 'pair_1' was a tensor of 1 dimension"):
        gm(torch.ones(3), [torch.ones(3), torch.ones(3, 3)])
    assert model.calls == 0
