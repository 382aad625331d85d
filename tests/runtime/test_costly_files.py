"""Files that would cost more than they hold: refused in time that goes with their size."""

from __future__ import annotations

import copy
import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from tests.runtime.test_strangers import X, calls, crafted, method, program  # noqa: F401 - a fixture

import graphwright
from graphwright.errors import LoadError

Data = dict[str, Any]
Parts = tuple[str, dict[str, torch.Tensor]]
LEN = "builtins:len"
ALIKE = [number * (2**61 - 1) for number in range(2_000)]  # one hash for all


def changed(parts: Parts, change: Callable[[Data], None]) -> Parts:
    data = json.loads(parts[0])
    change(data)
    return json.dumps(data), parts[1]


def load(parts: Parts, folder: Path, steps: list[Any] | None = None) -> Any:
    return graphwright.load(crafted(parts, steps or [calls("a", LEN, [1])], folder / "bad.gw"))


def test_a_long_list_that_many_nodes_share_is_refused(program: Parts, tmp_path: Path) -> None:  # noqa: F811
    place = len(json.loads(program[0])["objects"])
    parts = changed(program, lambda data: data["objects"].append({"list": [0] * 1_500}))
    few = [calls(f"a{i}", LEN, {"at": place}) for i in range(20)]
    assert load(parts, tmp_path, few)(torch.ones(1)) == 1_500
    many = [calls(f"a{i}", LEN, {"at": place}) for i in range(900)]
    with pytest.raises(LoadError, match=r"the arguments of the nodes have .* items more than the file has for them"):
        load(parts, tmp_path, many)


@pytest.mark.parametrize(
    "value",
    [
        {"set": ALIKE},
        {"dict": [[key, 0] for key in ALIKE]},
        {"list": [{"frozenset": ALIKE}]},
        {"list": [{"dict": [[{"tuple": [key, 1]}, 0] for key in ALIKE]}]},
    ],
)
def test_keys_that_were_chosen_to_have_one_hash_are_refused(value: Any, program: Parts, tmp_path: Path) -> None:  # noqa: F811
    parts = changed(program, lambda data: data["objects"].append(value))
    with pytest.raises(LoadError, match="keys of a dict or set have the same hash"):
        load(parts, tmp_path)


def test_arguments_may_not_have_such_keys(program: Parts, tmp_path: Path) -> None:  # noqa: F811
    with pytest.raises(LoadError, match="keys of a dict or set have the same hash"):
        load(program, tmp_path, [calls("a", LEN, {"dict": [[key, X] for key in ALIKE]})])


@pytest.mark.parametrize(
    "kind",
    [
        {"union": [{"literal": [number]} for number in range(200)]},
        {"or": [{"generic": ["list", [{"literal": [number]}]]} for number in range(200)]},
        {"literal": list(range(200))},
        {"generic": ["typing.Tuple", [{"none": None}] * 200]},
    ],
)
def test_a_type_of_very_many_parts_is_refused(kind: Any, program: Parts, tmp_path: Path) -> None:  # noqa: F811
    def change(data: Data) -> None:
        data["modules"][0]["program"]["nodes"][0][5] = kind

    with pytest.raises(LoadError, match="a type has more than 100 parts"):
        load(changed(program, change), tmp_path)


def nested(data: Data, levels: int) -> None:
    modules = data["modules"]
    for _ in range(levels):
        modules[-1]["modules"] = {"inner": len(modules)}
        modules.append(copy.deepcopy(modules[1]) | {"modules": {}})


def test_modules_inside_themselves_and_far_too_deep_are_refused(program: Parts, tmp_path: Path) -> None:  # noqa: F811
    with pytest.raises(LoadError, match="a module in the file is inside itself"):
        load(changed(program, lambda data: data["modules"][1].update(modules={"outer": 0})), tmp_path)
    with pytest.raises(LoadError, match="the modules in the file are nested 502 levels deep, more than 400"):
        load(changed(program, lambda data: nested(data, 500)), tmp_path)
    assert load(changed(program, lambda data: nested(data, 20)), tmp_path)(torch.ones(1)) == 1


def test_a_path_of_very_many_names_is_refused(program: Parts, tmp_path: Path) -> None:  # noqa: F811
    with pytest.raises(LoadError, match="a path in its program has 500 names, more than 400"):
        load(program, tmp_path, [("a", "get_attr", ".".join(["inner"] * 500), ())])


def test_what_is_read_by_many_nodes_is_looked_at_once(program: Parts, tmp_path: Path) -> None:  # noqa: F811
    """The work goes with the size of the file: neither the users of a node nor what it reads is gone over for each."""
    steps = [("m", "get_attr", "inner", ()), *[method(f"a{i}", "forward", {"node": "m"}, X) for i in range(2_000)]]
    with pytest.raises(LoadError, match="may not call the method"):
        load(program, tmp_path, steps)
    place = len(json.loads(program[0])["objects"])

    def change(data: Data) -> None:
        data["objects"] += [{"list": [0] * 20_000}, *[{"list": [{"at": place}]} for _ in range(500)]]
        data["modules"][0]["attributes"] |= {f"held{i}": {"at": place + 1 + i} for i in range(500)}

    reads = [(f"a{i}", "get_attr", f"held{i}", ()) for i in range(500)]
    assert load(changed(program, change), tmp_path, reads)(torch.ones(1)) == [[0] * 20_000]


def test_a_pipe_is_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.gw")
    with pytest.raises(LoadError, match="is no file of graphwright"):
        graphwright.load(tmp_path / "pipe.gw")
