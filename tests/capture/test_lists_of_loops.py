"""Lists that one loop makes and another goes over: for the example, they hold what they do for it."""

from __future__ import annotations

import collections
import contextlib
from typing import Any

import pytest
import torch

from graphwright import CaptureError, GuardError, trace
from graphwright.capture.flow.loop_regions import _LONGEST_EXAMPLE
from graphwright.capture.state.examples import Examples


def windows(x: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
    pieces = []
    for start in range(0, x.size(1), 4):
        pieces.append((start, min(x.size(1), start + 4)))
    taken = []
    for start, end in pieces:
        taken.append(x[:, start:end] * mask[:, start:end])
    return torch.cat(taken, 1) + x  # has the size of x, for the example too


def last_of(x: list[torch.Tensor], y: torch.Tensor) -> torch.Tensor:
    last = y[int((y * 0).sum().item()) :]
    for i, each in enumerate(x):
        last = each * i
    return last + y  # has the size of the last one


def test_what_is_enumerated_is_each_item_for_the_example() -> None:
    gm = trace(last_of, ([torch.randn(3), torch.randn(5)], torch.randn(5)))
    for sizes in ((3, 5), (5,), (1, 2, 5)):
        inputs = [torch.randn(size) for size in sizes], torch.randn(5)
        assert torch.equal(gm(*inputs), last_of(*inputs))


def pairs(x: torch.Tensor) -> torch.Tensor:
    first, second = [], []
    for i in range(x.size(1) - 1):
        for j in range(i + 1, x.size(1)):
            first.append(i)
            second.append(j)
    return (x[:, first] * x[:, second]).sum(-1)


def products_of_pairs(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    products = []
    for i in range(x.size(0)):
        for row in x[i + 1 :].unbind():
            products.append(x[i] * row)
    return torch.stack(products) + y  # there are as many pairs as there are rows of y


def test_a_loop_inside_runs_as_often_as_the_one_around_it_says() -> None:
    x = torch.randn(2, 5, 3)
    assert torch.equal(trace(pairs, (x,))(x), pairs(x))
    gm = trace(products_of_pairs, (torch.randn(4, 3), torch.randn(6, 1)))
    for rows in (4, 3, 5):
        inputs = torch.randn(rows, 3), torch.randn(rows * (rows - 1) // 2, 1)
        assert torch.equal(gm(*inputs), products_of_pairs(*inputs))


def mapped(x: torch.Tensor, steps: int = 3) -> list[torch.Tensor]:
    rows: list[torch.Tensor] = []
    for _ in range(steps):
        x = x * 2
        rows = [row + x for row in rows]
        rows.append(x)
    return rows


def mapped_and_joined(x: torch.Tensor, steps: int = 3) -> list[torch.Tensor]:
    rows: list[torch.Tensor] = []
    for _ in range(steps):
        x = x * 2
        rows = [row + x for row in rows] + [x]
        if x.sum() > 300:
            break
    return rows


def made_anew(x: torch.Tensor, steps: int = 3) -> list[torch.Tensor]:
    rows: list[torch.Tensor] = []
    for _ in range(steps):
        x = x * 2
        further = []
        for row in rows:
            further.append(row + x)
        further.append(x)
        rows = further
    return rows


def starred(x: torch.Tensor, steps: int = 3) -> list[torch.Tensor]:
    rows = [x]
    for _ in range(steps):
        rows = [*rows, rows[-1] * 2]
    return rows


def starred_in_front(x: torch.Tensor, steps: int = 3) -> tuple[torch.Tensor, ...]:
    rows: tuple[torch.Tensor, ...] = ()
    for _ in range(steps):
        x = x * 2
        rows = (torch.relu(x), *rows)
    return (x, *rows, x)


@pytest.mark.parametrize("program", [mapped, mapped_and_joined, made_anew, starred, starred_in_front])
def test_each_iteration_makes_a_list_of_the_one_before(program: Any) -> None:
    gm = trace(program, (torch.ones(3),))
    assert gm.guards == []
    for steps in (3, 6, 1, 0):
        torch.testing.assert_close(gm(torch.ones(3) * 3, steps), program(torch.ones(3) * 3, steps))


# ---- of lists that are empty for the example it is known what a run has in them


def doubled(x: torch.Tensor) -> list[int]:
    return [value * 2 for value in x[x > 0].long().tolist()]


def taken(x: torch.Tensor) -> torch.Tensor:
    kept = []
    for i in (x > 0).nonzero().flatten().tolist():
        kept.append(x[i] * i)
    return torch.stack(kept) if kept else x.new_zeros(0)


def reached(x: torch.Tensor, start: int = 0) -> torch.Tensor:
    found = torch.full((x.size(0),), -1)
    found[start] = 0
    waiting = collections.deque([start])
    while waiting:
        place = waiting.popleft()
        for other in (x > x[place]).nonzero().flatten().tolist():
            if found[other] < 0:
                found[other] = found[place] + 1
                waiting.append(other)
    return found


@pytest.mark.parametrize(("program", "example"), [(doubled, -1.0), (taken, -1.0), (reached, 1.0)])
def test_lists_of_numbers_may_be_empty_for_the_example(program: Any, example: float) -> None:
    gm = trace(program, (torch.full((4,), example),))
    for x in (torch.tensor([1.5, -1.0, 2.0, 3.0, 0.5]), -torch.ones(3), torch.arange(4.0)):
        torch.testing.assert_close(gm(x), program(x))


def more_in_each_dict(x: list[torch.Tensor]) -> list[dict[str, torch.Tensor]]:
    results = []
    for i in range(len(x)):
        results.append({"twice": x[i] * 2})
    for result, each in zip(results, x, strict=True):
        result["more"] = each + 1
    return results


def more_in_each_list(x: list[torch.Tensor]) -> list[list[torch.Tensor]]:
    results = []
    for i in range(len(x)):
        results.append([x[i] * 2])
    for result, each in zip(results, x, strict=True):
        result.append(each + 1)
        result[0] = result[0] + 3
    return results


@pytest.mark.parametrize("program", [more_in_each_dict, more_in_each_list])
def test_what_is_in_a_list_gets_more_in_a_zip(program: Any) -> None:
    gm = trace(program, ([torch.randn(3), torch.randn(5)],))
    assert gm.guards == []
    for sizes in ((3, 5), (5,), (1, 2, 5), ()):
        x = [torch.randn(size) for size in sizes]
        torch.testing.assert_close(gm(x), program(x), rtol=0, atol=0)


# ---- dicts in a list get further keys: whether one has such a key is asked of the run

Results = list[dict[str, Any]]


def results_of(x: list[torch.Tensor]) -> Results:
    results = []
    for i in range(len(x)):
        results.append({"boxes": x[i] * 2, "size": x[i].size(0), "is_large": x[i].sum() > 1})
    return results


def in_all(x: list[torch.Tensor]) -> tuple[Results, torch.Tensor]:
    results = results_of(x)
    for result, each in zip(results, x, strict=True):
        result["mask"] = each + 1
    sums = []
    for result in results:
        if "mask" in result:
            result["mask"] = result["mask"] * 2
            sums.append(result["mask"].sum())
        else:
            sums.append(result["boxes"].sum())
    return results, torch.stack(sums)


def in_some(x: list[torch.Tensor]) -> tuple[Results, list[torch.Tensor]]:
    results = results_of(x)
    for result, each in zip(results, x, strict=True):
        if each.size(0) > 3:
            result["mask"] = each + 1
    sums = []
    for result in results:
        if "mask" in result:
            sums.append(result["mask"].sum())
        else:
            sums.append(result["boxes"].sum() + 100)
    return results, sums


def with_default(x: list[torch.Tensor]) -> tuple[Results, list[torch.Tensor]]:
    results = results_of(x)
    for result, each in zip(results, x[1:], strict=False):
        result["mask"], result["rank"] = each + 1, each.dim()
    sums = []
    for result in results:
        sums.append(result.get("mask", result["boxes"]).sum())
    return results, sums


def missing(x: list[torch.Tensor]) -> list[torch.Tensor]:
    results = results_of(x)
    for result, each in zip(results, x[1:], strict=False):
        result["mask"] = each + 1
    return [result["mask"] for result in results]


def by_two_names(x: list[torch.Tensor]) -> tuple[Results, torch.Tensor]:
    results = results_of(x)
    one, other = results[0], results[0]
    one["mask"] = x[0] * 3
    if "mask" in other:
        return results, other["boxes"]
    return results, x[0]


def asked_before(x: list[torch.Tensor]) -> Results:
    results = results_of(x)
    for _ in range(2):
        for result in results:
            if "seen" in result:
                result["boxes"] = result["boxes"] * 10
            result["seen"] = result["is_large"]
    return results


def outcome(program: Any, x: list[torch.Tensor]) -> Any:
    try:
        return program(x)
    except KeyError as error:
        return str(error)


@pytest.mark.parametrize("program", [in_all, in_some, with_default, missing, by_two_names, asked_before])
def test_dicts_in_a_list_get_keys(program: Any) -> None:
    gm = trace(program, ([torch.randn(3), torch.randn(5)],))
    for sizes in ((3, 5), (5, 2), (5,), (1, 2, 5)):
        x = [torch.randn(size) for size in sizes]
        found, wanted = outcome(gm, x), outcome(program, x)
        if isinstance(wanted, str):
            assert found == wanted
        else:
            torch.testing.assert_close(found, wanted, rtol=0, atol=0)


def keys(x: list[torch.Tensor]) -> tuple[Results, list[list[str]]]:
    results = results_of(x)
    for result in results:
        result["more"] = result["boxes"] + 1
    return results, [sorted(result.keys()) for result in results]


def test_the_keys_of_such_dicts_are_those_of_the_example_under_a_guard() -> None:
    x = [torch.randn(3), torch.randn(5)]
    gm = trace(keys, (x,))
    found, wanted = gm(x), keys(x)
    torch.testing.assert_close(found[0], wanted[0], rtol=0, atol=0)
    assert found[1] == wanted[1]
    with pytest.raises(GuardError):
        gm(x[:1])


def test_pieces_of_one_loop_are_taken_by_another() -> None:
    gm = trace(windows, (torch.randn(2, 16), torch.randn(2, 16)))
    assert gm.guards == []
    for size in (4, 16, 22):
        inputs = torch.randn(3, size), torch.randn(3, size)
        assert torch.equal(gm(*inputs), windows(*inputs))


def test_a_part_of_a_list_that_ends_where_only_a_run_knows() -> None:
    def program(x: torch.Tensor) -> torch.Tensor:
        ends = []
        for i in range(x.shape[0]):
            if x[i].sum() > 0:
                ends.append(i)
        return x * sum(ends[: ends.index(2) + 1])

    gm = trace(program, (torch.ones(4),))
    for x in (torch.ones(5), torch.tensor([1.0, -1, 2, 3, 4]), torch.tensor([-1.0, -1, 2])):
        assert torch.equal(gm(x), program(x))


def paths_back(scores: torch.Tensor, lengths: torch.Tensor) -> list[list[int]]:
    steps = []
    for row in scores:
        steps.append(row.argmax(1))
    paths = []
    for i in range(lengths.size(0)):
        path = [int(lengths[i].item())]
        for step in reversed(steps[: lengths[i]]):  # a tensor as the end of a slice
            path.append(step[path[-1]].item())
        paths.append(path)
    return paths


def test_a_slice_that_ends_at_a_tensor_is_as_long_as_the_example_says(monkeypatch: pytest.MonkeyPatch) -> None:
    runs = []

    def run(self: Examples, *args: Any) -> Any:
        runs.append(args)
        return original(self, *args)

    original = Examples.run
    monkeypatch.setattr(Examples, "run", run)
    gm = trace(paths_back, (torch.randn(4, 6, 6), torch.tensor([3, 2])))
    assert len(runs) < _LONGEST_EXAMPLE
    for steps, lengths in ((4, [3, 2]), (5, [0, 5, 1]), (1, [1])):
        inputs = torch.randn(steps, 6, 6), torch.tensor(lengths)
        assert gm(*inputs) == paths_back(*inputs)


def lengths(x: torch.Tensor) -> torch.Tensor:
    parts = []
    for row in x:
        parts.append(row[: int(row.sum().item())])
    return torch.LongTensor([part.shape[0] for part in parts])


def of_data(x: torch.Tensor) -> torch.Tensor:
    found = []
    for row in x:
        found.append(float(row.sum()))
    return torch.FloatTensor(found)


def of_tensors(x: torch.Tensor) -> torch.Tensor:
    found = []
    for row in x:
        found.append(row.sum())
    return torch.Tensor(found)


CLASSES_OF_TENSORS = [
    lengths,
    of_data,
    of_tensors,
    lambda x: torch.DoubleTensor([row.sum() for row in x]),
    lambda x: torch.BoolTensor([bool(row.sum() > 1) for row in x]),
    lambda x: torch.LongTensor([[i, x.size(1)] for i in range(x.size(0))]),
    lambda x: torch.FloatTensor([x.sum(), x.mean()]),
    lambda x: torch.Tensor([[x.sum().item(), 1], [2, x.size(0)]]),
    lambda x: torch.LongTensor(x.sum(1).long().tolist()),
]


def caught(x: torch.Tensor) -> torch.Tensor:
    places = []
    for i in range(x.size(0)):
        places.append(i)
    try:
        return x.sum(places)
    except IndexError:
        return x


def test_what_torch_asks_of_a_list_of_the_run_ends_no_process() -> None:
    with contextlib.suppress(CaptureError):  # is refused with newer releases
        assert torch.equal(trace(caught, (torch.ones(2, 3),))(torch.ones(2, 3)), torch.tensor(6.0))


@pytest.mark.parametrize("program", CLASSES_OF_TENSORS)
def test_classes_of_tensors_take_lists_of_the_run(program: Any) -> None:
    gm = trace(program, (torch.ones(2, 3),))
    for x in (torch.ones(2, 3), torch.ones(4, 3), torch.zeros(1, 3)):
        assert torch.equal(gm(x), program(x)) and gm(x).dtype == program(x).dtype
