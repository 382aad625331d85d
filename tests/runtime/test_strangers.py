"""Files from strangers: what they name, read, call and compute leads to nothing but data."""

from __future__ import annotations

import builtins
import collections
import heapq
import json
import math
import operator
import random
import re
import sys
import types
import warnings
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors import safe_open
from tests.runtime import reaching
from torch import nn

import graphwright
from graphwright.errors import GraphwrightError, LoadError
from graphwright.runtime.packaging.weights import save_tensors
from graphwright.runtime.saving import saving
from graphwright.runtime.trust.members import is_data, is_field, is_method
from graphwright.runtime.trust.names import Trust
from graphwright.runtime.trust.operators import operator_names

X = {"node": "x"}
A, B, C = {"node": "a"}, {"node": "b"}, {"node": "c"}
Step = tuple[Any, ...]  # name, op, target, args, and kwargs where there are some


class Plain(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Linear(2, 2)
        self.box: Any = types.SimpleNamespace(size=2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.inner(x)


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, dict[str, torch.Tensor]]:
    file = tmp_path_factory.mktemp("plain") / "model.gw"
    model = Plain()
    graphwright.save(graphwright.GraphModule(model, graphwright.symbolic_trace(model).graph), file)
    with safe_open(str(file), framework="pt") as opened:
        return opened.metadata()[saving.NOTE], {name: opened.get_tensor(name) for name in opened.keys()}


def crafted(program: tuple[str, dict[str, torch.Tensor]], steps: list[Step], file: Path, **more: Any) -> Path:
    """Write the file of a program that does these steps before it returns the value of the last."""
    text, tensors = program
    data = json.loads(text)
    root = data["modules"][0]
    x = root["program"]["nodes"][0]
    nodes = [[name, op, target, list(args), dict(*kwargs), None, {}, None] for name, op, target, args, *kwargs in steps]
    last = ["output", "output", "output", [{"node": steps[-1][0]}], {}, None, {}, None]
    root["program"]["nodes"] = [x, *nodes, last]
    root["attributes"] = {**root["attributes"], **more.pop("attributes", {})}
    root["program"]["constants"] = {}
    root["bases"] = ["graphwright:GraphModule"]
    root["program"]["original"] = None
    data["objects"] += more.pop("objects", [])
    save_tensors(tensors, file, {saving.NOTE: json.dumps(data)})
    return file


def named(name: str) -> dict[str, str]:
    return {"name": name}


def calls(name: str, target: str, *args: Any, **kwargs: Any) -> Step:
    return (name, "call_function", target, [*map(listed, args)], kwargs)


def method(name: str, target: str, *args: Any, **kwargs: Any) -> Step:
    return (name, "call_method", target, [*map(listed, args)], kwargs)


def listed(value: Any) -> Any:
    return {"list": value} if isinstance(value, list) else value


def reads(name: str, value: Any, attribute: str) -> Step:
    return calls(name, "builtins:getattr", value, attribute)


SPACE = "types:SimpleNamespace"
REFUSED: dict[str, list[Step]] = {
    # Reaching what Python is made of.
    "the frame of a generator": [calls("a", "graphwright.ops:generated", [1]), reads("b", A, "gi_frame")],
    "the frame of a merge": [calls("a", "heapq:merge", [1], [2]), reads("b", A, "gi_frame")],
    "the builtins of a frame": [calls("a", "heapq:merge", [1]), reads("b", A, "f_builtins")],
    "globals": [reads("a", X, "f_globals")],
    "a universal getattr": [
        calls("a", "graphwright.runtime:attributes_of", named("builtins:object")),
        calls("b", "operator:getitem", A, "__getattribute__"),
    ],
    "the attributes of a module class": [
        calls("a", "graphwright.runtime:attributes_of", named("torch.nn:Softsign")),
    ],
    "a method as a value": [reads("a", X, "relu")],
    "the memory of a tensor": [reads("a", X, "untyped_storage")],
    "a hook of a tensor": [reads("a", X, "register_hook")],
    "the graph of gradients": [reads("a", X, "grad_fn"), calls("b", "operator:is_", A, None), method("c", "next", A)],
    "a hook below a tensor": [("a", "get_attr", "inner.weight.register_hook", ())],
    "memory below a tensor": [("a", "get_attr", "inner.weight.untyped_storage", ())],
    "a method of a module": [("a", "get_attr", "inner.register_forward_hook", ())],
    "parameters by a generator": [("a", "get_attr", "inner", ()), method("b", "named_parameters", A)],
    "a text that reads attributes": [calls("a", "builtins:str.format", "{0.__class__}", X)],
    "a method of a text that does": [method("a", "format", "{0.__class__.__mro__}", X)],
    "a computed text to format": [calls("a", "builtins:str", X), method("b", "format", A, X)],
    "a text to format with a map": [method("a", "format_map", "{x.__class__}", {"dict": []})],
    "a computed name": [calls("a", "builtins:str", X), calls("b", "builtins:getattr", X, A)],
    "dunder attributes": [calls("a", SPACE, __array_interface__=1)],
    "a class in an object": [calls("a", "graphwright.runtime:new_object", named(SPACE), relu=named("torch.nn:Linear"))],
    "dunder attributes of an object": [calls("a", "graphwright.runtime:new_object", named(SPACE), __class__=1)],
    "an address": [calls("a", "torch:Tensor", cdata=1)],
    "an address for a method": [method("a", "new", X, cdata=1)],
    # Calling what was computed or given.
    "a function in a namespace": [calls("a", SPACE, relu=named("builtins:print")), method("b", "relu", A)],
    "a class in a namespace": [calls("a", SPACE, relu=named("torch.nn:Linear")), method("b", "relu", A)],
    "an operator in a namespace": [calls("a", SPACE, relu=named("torch:manual_seed")), method("b", "relu", A)],
    "sort by a value": [method("b", "sort", [1, 2], key=X)],
    "sort by print": [method("b", "sort", [1, 2], key=named("builtins:print"))],
    "list.sort by a value": [calls("b", "builtins:list.sort", [1, 2], key=X)],
    "sorted by a value": [calls("b", "builtins:sorted", [1, 2], key=X)],
    "the largest by a value": [calls("b", "heapq:nlargest", 1, [1, 2], key=X)],
    "the smallest by a value": [calls("b", "heapq:nsmallest", 1, [1, 2], X)],
    "a merge by a value": [calls("b", "heapq:merge", [1, 2], key=X)],
    "printing to a value": [calls("b", "builtins:print", 1, file=X)],
    "a checkpoint of a value": [calls("b", "torch.utils.checkpoint:checkpoint", X, X)],
    "a checkpoint in a context of a value": [
        calls("b", "torch.utils.checkpoint:checkpoint", named("torch:relu"), X, context_fn=X)
    ],
    "a context of a value": [calls("b", "graphwright.ops:enter_context", X)],
    "a context that forks with a computed device": [
        calls("b", "graphwright.ops:enter_context", named("torch.random:fork_rng"), device_type=X)
    ],
    "a class as a context": [calls("b", "graphwright.ops:enter_context", named("torch.nn:Linear"), 1, 1)],
    "a factory of a value": [calls("b", "collections:defaultdict", X)],
    "a factory that prints": [calls("b", "collections:defaultdict", named("builtins:print"))],
    "an iterator that calls": [calls("b", "builtins:iter", X, 1)],
    "an attempt of a value": [
        calls("b", "graphwright.ops:transformed", "attempt", X, {"tuple": []}, {"tuple": []}, {"dict": []})
    ],
    "an attempt of a function": [
        calls(
            "b",
            "graphwright.ops:transformed",
            "attempt",
            named("builtins:print"),
            {"tuple": []},
            {"tuple": []},
            {"dict": []},
        )
    ],
    "a branch of functions": [
        calls("b", "graphwright.ops:cond", True, named("builtins:print"), named("builtins:print"), {"tuple": []})
    ],
    "an error of a value": [calls("b", "graphwright.ops:raise_error", X, 1)],
    "an error that ends Python": [calls("b", "graphwright.ops:raise_error", named("builtins:SystemExit"), 1)],
    "apply of a module": [("a", "get_attr", "inner", ()), method("b", "apply", A, named("torch:relu"))],
    "a value with functional_call": [calls("b", "torch.func:functional_call", X, {"dict": []}, X)],
    "a map over a tensor": [method("b", "apply_", X, named("builtins:abs"))],
    "a hook on a tensor": [method("b", "register_hook", X, named("torch:relu"))],
    "a switch that nobody turns back": [calls("b", "torch:set_grad_enabled", False)],
    "a copy with a memory": [calls("b", "copy:deepcopy", X, {"dict": []})],
    # Imports by text, and memory that nothing checks.
    "the type of a storage": [method("a", "untyped_storage", X), method("b", "type", A, "any.module")],
    "the type of an older storage": [method("a", "storage", X), method("b", "type", A, "any.module")],
    "a text of another encoding": [method("a", "encode", "a", "any_module")],
    "sparse indices that are far": [calls("a", "torch.ops:aten._sparse_coo_tensor_unsafe", X, X, [2])],
    "sparse indices by torch": [calls("a", "torch:_sparse_coo_tensor_unsafe", X, X, [2])],
    "sparse compressed": [calls("a", "torch:_sparse_csr_tensor_unsafe", X, X, X, [2])],
    "memory of another tensor": [method("a", "set_", X, X)],
    "packed weights": [calls("a", "torch.ops:aten.fbgemm_linear_int8_weight", X, X, X, X, 1, 0, X)],
    "a file": [calls("a", "torch.ops:aten.from_file", "/etc/passwd")],
    "bytes as a tensor": [calls("a", "torch:frombuffer", {"bytes": "00"})],
    "bytes of another encoding": [calls("a", "builtins:bytes", "a", "any_module")],
    "a text out of bytes of another encoding": [calls("a", "builtins:str", {"bytes": "61"}, encoding="any_module")],
}


@pytest.mark.parametrize("name", REFUSED)
def test_a_way_to_more_than_data_is_refused(
    name: str, program: tuple[str, dict[str, torch.Tensor]], tmp_path: Path
) -> None:
    file = crafted(program, REFUSED[name], tmp_path / "bad.gw")
    with pytest.raises(LoadError) as refused:
        graphwright.load(file)
    assert not re.search("is no value|no node before|is no target", str(refused.value))


def test_what_the_crafted_files_add_is_all_that_is_wrong_with_them(
    program: tuple[str, dict[str, torch.Tensor]], tmp_path: Path
) -> None:
    steps = [
        calls("a", SPACE, values=X),
        reads("b", A, "values"),
        method("c", "relu", B),
        calls("d", "builtins:sorted", [2, 1], key=named("builtins:abs")),
    ]
    gm = graphwright.load(crafted(program, steps[:3], tmp_path / "good.gw"))
    assert torch.equal(gm(torch.tensor([-1.0, 2.0])), torch.tensor([0.0, 2.0]))
    assert "read_field" in gm.code  # `values` is a method of dicts
    assert graphwright.load(crafted(program, steps, tmp_path / "good.gw"))(torch.ones(1)) == [1, 2]


def test_a_name_that_may_be_a_method_is_looked_at_when_the_program_runs(
    program: tuple[str, dict[str, torch.Tensor]], tmp_path: Path
) -> None:
    steps = [calls("a", SPACE, values=X), calls("b", "builtins:dict"), reads("c", B, "values")]
    gm = graphwright.load(crafted(program, steps, tmp_path / "bad.gw"))
    with pytest.raises(GraphwrightError, match="'values' of a dict is no data"):
        gm(torch.ones(2))


def test_private_attributes_are_data_alone(program: tuple[str, dict[str, torch.Tensor]], tmp_path: Path) -> None:
    steps = [calls("a", SPACE, _width=X, _rows={"list": [1]}), reads("b", A, "_width")]
    gm = graphwright.load(crafted(program, steps, tmp_path / "good.gw"))
    assert "read_private" in gm.code and torch.equal(gm(torch.ones(2)), torch.ones(2))
    graphwright.save(gm, tmp_path / "again.gw")
    assert nodes_in(tmp_path / "again.gw") == nodes_in(tmp_path / "good.gw")
    for name, what in (("_rows", "but a list"), ("_parameters", "it has none itself")):
        gm = graphwright.load(crafted(program, [steps[0], reads("b", A, name)], tmp_path / "bad.gw"))
        with pytest.raises(GraphwrightError, match=rf"{name!r} of a SimpleNamespace is no tensor or number.*{what}"):
            gm(torch.ones(2))


def test_the_data_of_tensors_is_set_to_data_of_their_kind(
    program: tuple[str, dict[str, torch.Tensor]], tmp_path: Path
) -> None:
    weight = "a", "get_attr", "inner.bias", [], {}
    sets = calls("c", "builtins:setattr", A, "data", B)
    steps = [weight, calls("b", "torch:relu", A), sets, calls("d", "torch:abs", A)]
    gm = graphwright.load(crafted(program, steps, tmp_path / "good.gw"))
    assert "write_data" in gm.code
    assert torch.equal(gm(torch.ones(2)), gm.inner.bias)
    assert bool((gm.inner.bias >= 0).all())
    graphwright.save(gm, tmp_path / "again.gw")
    assert nodes_in(tmp_path / "again.gw") == nodes_in(tmp_path / "good.gw")
    for given in (calls("b", "torch:zeros", 3), calls("b", "torch:zeros", [2, 2]), calls("b", SPACE)):
        gm = graphwright.load(crafted(program, [weight, given, *steps[2:]], tmp_path / "bad.gw"))
        before = gm.inner.bias.clone()
        with pytest.raises(GraphwrightError, match="a program that was loaded from a file may not set 'data'"):
            gm(torch.ones(2))
        assert torch.equal(gm.inner.bias, before)
    for args in ((A, "requires_grad", B), (A, "__class__", B), (A, B, B), (A, "data")):
        with pytest.raises(LoadError, match="may set no attribute but the data of a tensor"):
            graphwright.load(crafted(program, [*steps[:2], calls("c", "builtins:setattr", *args)], tmp_path / "bad.gw"))


def test_what_is_looked_at_when_the_program_runs_is_saved_as_it_was(
    program: tuple[str, dict[str, torch.Tensor]], tmp_path: Path
) -> None:
    steps = [
        calls("a", SPACE, values=X),
        reads("b", A, "values"),
        calls("c", "torch:finfo", {"dtype": "float32"}),
        reads("d", C, "min"),
        calls("e", "builtins:len", [B, {"node": "d"}]),
    ]
    gm = graphwright.load(crafted(program, steps, tmp_path / "model.gw"))
    assert gm.code.count("read_field") == 1  # of `min`, which tensors have as a method, it is known whose it is
    graphwright.save(gm, tmp_path / "again.gw")
    assert nodes_in(tmp_path / "again.gw") == nodes_in(tmp_path / "model.gw")


def nodes_in(file: Path) -> list[Any]:
    with safe_open(str(file), framework="pt") as opened:
        nodes = json.loads(opened.metadata()[saving.NOTE])["modules"][0]["program"]["nodes"]
    return [fields[:5] for fields in nodes]


@pytest.mark.parametrize("attributes", [{"relu": {"name": "torch:manual_seed"}}, {"relu": {"name": "builtins:dict"}}])
def test_an_object_that_holds_functions_is_no_value(
    attributes: dict[str, Any], program: tuple[str, dict[str, torch.Tensor]], tmp_path: Path
) -> None:
    box = {"class": SPACE, "attributes": attributes}
    text, tensors = program
    data = json.loads(text)
    data["objects"].append(box)
    place = len(data["objects"]) - 1
    changed = (json.dumps(data), tensors)
    steps: list[Step] = [("a", "get_attr", "other", ()), method("b", "relu", A)]
    file = crafted(changed, steps, tmp_path / "bad.gw", attributes={"other": {"at": place}})
    with pytest.raises(LoadError, match="as a value"):
        graphwright.load(file)


@pytest.mark.parametrize("given", [lambda top: top, lambda top: {"list": [top, X]}, lambda top: {"tuple": [top, 1]}])
def test_lists_that_share_lists_are_no_arguments(
    given: Any, program: tuple[str, dict[str, torch.Tensor]], tmp_path: Path
) -> None:
    text, tensors = program
    data = json.loads(text)
    start = len(data["objects"])
    data["objects"] += [{"list": [1]}, *[{"list": [{"at": start + i}] * 2} for i in range(40)]]
    steps = [calls("a", "builtins:len", given({"at": start + 40}))]
    with pytest.raises(LoadError, match=r"is larger than the .* items"):
        graphwright.load(crafted((json.dumps(data), tensors), steps, tmp_path / "bad.gw"))


def test_all_that_would_have_to_be_allowed_is_said_at_once(
    program: tuple[str, dict[str, torch.Tensor]], tmp_path: Path
) -> None:
    steps = [
        calls("a", "tests.runtime.saved_models:doubled", X),
        calls("b", "einops:asnumpy", A),
        calls("c", "tests.runtime.test_strangers:marker", A),
    ]
    file = crafted(program, steps, tmp_path / "model.gw")
    with pytest.raises(LoadError, match=r"saved_models:doubled(.|\n)*einops(.|\n)*allow=\['tests', 'einops'\]"):
        graphwright.load(file)


def test_what_einops_computes_needs_no_leave_and_the_rest_of_it_does(
    program: tuple[str, dict[str, torch.Tensor]], tmp_path: Path
) -> None:
    pytest.importorskip("einops")
    file = crafted(program, [calls("a", "einops:reduce", X, "a b -> b", "sum")], tmp_path / "sum.gw")
    assert torch.equal(graphwright.load(file)(torch.ones(2, 3)), torch.full((3,), 2.0))
    for step, message in (
        (calls("a", "einops:reduce", X, "a b -> b", named("torch:amax")), "amax as a value"),  # which it would call
        (calls("a", "einops:asnumpy", X), r"allow=\['einops'\]"),
        (calls("a", "einops._backends:get_backend", X), r"allow=\['einops'\]"),
        (calls("a", "einops.layers.torch:Rearrange", "a -> a"), "einops.layers.torch:Rearrange"),
        (method("a", "register_hook", X, named("einops:rearrange")), "register_hook"),
    ):
        with pytest.raises(LoadError, match=message):
            graphwright.load(crafted(program, [step], tmp_path / "bad.gw"))


# ---- closed tables


def test_every_name_of_a_tensor_is_open_for_a_reason() -> None:
    """What torch adds is closed until somebody opens it, and what reaches out of the data stays closed."""
    for name in ("apply_", "map_", "map2_", "register_hook", "untyped_storage", "storage", "data_ptr", "set_"):
        assert not is_method(name, torch.Tensor)
        assert not is_field(name)
    for name in dir(torch.Tensor):
        if name.startswith("_") and name != "_version":  # which counts the writes
            assert not is_data(name) or not is_field(name)
        elif is_field(name, torch.Tensor):
            assert not callable(getattr(torch.Tensor, name)), name


def test_no_operator_is_open_that_takes_memory_on_trust() -> None:
    assert not [name for name in operator_names() if "unsafe" in name and name.startswith("_") and "view" not in name]
    assert operator_names().isdisjoint({"set_", "from_file", "record_stream", "_sparse_coo_tensor_unsafe", "set_data"})


ON_TRUST = [
    "torch.ops:aten.max_pool2d_with_indices_backward.default",
    "torch.ops:aten.embedding_dense_backward",
    "torch.ops:aten._native_batch_norm_legit.default",
    "torch:native_batch_norm",
    "torch:ctc_loss",
    "torch.nn.functional:ctc_loss",
]


@pytest.mark.parametrize("name", ON_TRUST)
def test_what_writes_where_it_is_told_is_allowed_by_its_name_alone(
    name: str, program: tuple[str, dict[str, torch.Tensor]], tmp_path: Path
) -> None:
    file = crafted(program, [calls("a", name, X)], tmp_path / "model.gw")
    with pytest.raises(LoadError, match="nothing checks that") as refused:
        graphwright.load(file, allow=["tests"])
    assert f"allow=['{name}']" in str(refused.value)
    assert graphwright.load(file, allow=[name]) is not None


def test_no_backward_of_a_kernel_and_no_unchecked_batch_norm_is_open() -> None:
    assert not [name for name in operator_names() if "_backward" in name]
    assert {"batch_norm", "instance_norm"} <= operator_names()
    assert operator_names().isdisjoint({"native_batch_norm", "_native_batch_norm_legit", "batch_norm_update_stats"})
    with pytest.raises(LoadError, match=r"torch\.nn:CTCLoss"):
        Trust().find("torch.nn:CTCLoss")


def test_a_program_with_such_a_layer_is_saved(tmp_path: Path) -> None:
    class Losses(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.loss = nn.CTCLoss()

        def forward(self, x: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
            return self.loss(x, labels, torch.tensor([5]), torch.tensor([2]))

    args = torch.rand(5, 1, 4).log_softmax(2), torch.tensor([[1, 2]])
    gm = graphwright.trace(Losses(), args)
    graphwright.save(gm, tmp_path / "model.gw", as_plain=True)
    with pytest.raises(LoadError, match=r"allow=\['torch.nn:CTCLoss'"):
        graphwright.load(tmp_path / "model.gw")
    allow = ["torch.nn:CTCLoss", "torch.nn.functional:ctc_loss"]
    assert torch.equal(graphwright.load(tmp_path / "model.gw", allow=allow)(*args), gm(*args))


# ---- annotations, which captures and torch.jit evaluate

RUNS = "marker()"


@pytest.mark.parametrize(
    "kind",
    [
        RUNS,
        f"list[{RUNS}]",
        f"list['{RUNS}']",
        f" {RUNS}",
        f"*{RUNS}",
        f"f'{{{RUNS}}}'",
        "torch.ctypes.cdll['a.so']",
        "print.__self__",
        {"generic": ["list", [RUNS]]},
        {"literal": [["a"]]},
    ],
)
@pytest.mark.parametrize("place", [0, -1])
def test_an_annotation_that_does_more_than_to_name_types_is_refused(
    kind: Any, place: int, program: tuple[str, dict[str, torch.Tensor]], tmp_path: Path
) -> None:
    data = json.loads(program[0])
    data["modules"][0]["program"]["nodes"][place][5] = kind
    save_tensors(program[1], tmp_path / "bad.gw", {saving.NOTE: json.dumps(data)})
    with pytest.raises(LoadError, match=r"may not have the annotation|is no literal"):
        graphwright.load(tmp_path / "bad.gw", allow=["tests"])


@pytest.mark.parametrize("text", ["list[torch.Tensor] | None", "Float[Tensor, 'batch width']", "~T", "pkg.Box", "*Ts"])
def test_a_text_that_names_types_is_kept(text: str, tmp_path: Path) -> None:
    graph = graphwright.Graph()
    graph.output(graph.placeholder("x", type_expr=text))
    assert graphwright.save(graphwright.GraphModule(nn.Module(), graph), tmp_path / "model.gw") == []
    assert next(iter(graphwright.load(tmp_path / "model.gw").graph.nodes)).type == text


def test_an_annotation_that_no_file_may_have_is_left_out(tmp_path: Path) -> None:
    graph = graphwright.Graph()
    graph.output(graph.placeholder("x", type_expr=RUNS))
    (line,) = graphwright.save(graphwright.GraphModule(nn.Module(), graph), tmp_path / "model.gw")
    assert "the annotation 'marker()'" in line
    assert graphwright.load(tmp_path / "model.gw")(3) == 3


# ---- programs of anything


REGISTERED = torch._C._dispatch_get_all_op_names()
OPERATORS = sorted({name[6:].partition(".")[0] for name in REGISTERED if name.startswith("aten::")})
TOUCHED: list[Any] = []


def marker(*args: Any, **kwargs: Any) -> Any:
    """What no program may call: a module of this process holds it, and no table."""
    TOUCHED.append((args, kwargs))


def is_open(name: str) -> bool:
    try:
        Trust().find(name)
    except LoadError:
        return False
    return True


class Names:
    """What a fuzzer composes programs of: every name that it can reach."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        homes = (builtins, operator, heapq, collections, math, torch, torch.nn.functional, torch.nn, types, random)
        ours = sys.modules["graphwright.ops"].__all__
        self.functions = [f"{home.__name__}:{name}" for home in homes for name in dir(home)]
        self.functions += [f"graphwright.ops:{name}" for name in ours]
        self.functions += [f"graphwright.runtime:{name}" for name in sys.modules["graphwright.runtime"].__all__]
        self.functions += [f"torch.ops:aten.{name}" for name in OPERATORS]
        self.functions += [f"{__name__}:marker", "tests.runtime.test_strangers:marker", "torch.func:functional_call"]
        kinds = (torch.Tensor, list, dict, str, tuple, types.SimpleNamespace, types.GeneratorType, types.FrameType)
        self.open = [name for name in self.functions if is_open(name)]
        self.members = sorted({name for kind in (*kinds, nn.Module, type) for name in dir(kind)})
        self.members += ["gi_frame", "f_globals", "size", "relu", "values"]

    def value(self, made: list[str], depth: int = 0) -> Any:
        kind = self.random.randrange(12 if depth < 2 else 8)
        if kind < 5:
            return {"node": self.random.choice(made)}
        if kind == 5:
            return self.random.choice(
                [0, 1, 2.5, None, True, "relu", "__class__", "torch.FloatTensor", "{0.__class__}"]
            )
        if kind < 8:
            return {"name": self.random.choice(self.functions)}
        parts = [self.value(made, depth + 1) for _ in range(self.random.randrange(3))]
        if kind == 8:
            return {"dict": [[f"k{i}", part] for i, part in enumerate(parts)]}
        return {"list" if kind == 9 else "tuple": parts}

    def step(self, name: str, made: list[str]) -> Step:
        args = [self.value(made) for _ in range(self.random.randrange(4))]
        kwargs = {}
        if self.random.random() < 0.2:
            word = self.random.choice(["key", "file", "default", "function", "body", "out", "dtype", "relu", "values"])
            kwargs[word] = self.value(made)
        kind = self.random.randrange(10)
        if kind < 5:
            return (name, "call_function", self.random.choice(self.open if kind < 4 else self.functions), args, kwargs)
        if kind < 7:
            return (name, "call_method", self.random.choice(self.members), [{"node": made[-1]}, *args], kwargs)
        if kind < 9:
            return reads(name, self.value(made), self.random.choice(self.members))
        path = self.random.choice(["inner", "inner.weight", "box", "box.size", "inner.weight." + self.members[0]])
        return (
            name,
            "get_attr",
            f"{path}.{self.random.choice(self.members)}" if self.random.random() < 0.5 else path,
            (),
        )


_REACHED = (
    types.FrameType,
    types.CodeType,
    types.ModuleType,
    types.MethodType,
    types.MethodWrapperType,
    types.FunctionType,
)
_REACHED += (types.BuiltinFunctionType, types.GetSetDescriptorType, type(type.__dict__), types.MethodDescriptorType)  # type: ignore[assignment]


def held(value: Any) -> list[Any]:
    found, waiting, seen = [], [value], set()
    while waiting:
        item = waiting.pop()
        if id(item) in seen:
            continue
        seen.add(id(item))
        found.append(item)
        if isinstance(item, dict):
            waiting += [*dict.keys(item), *dict.values(item)]
        elif isinstance(item, list | tuple | set | frozenset):
            waiting += list(item)
        elif isinstance(item, types.SimpleNamespace):
            waiting += list(vars(item).values())
    return found


@pytest.mark.parametrize("count", [40, pytest.param(8_000, marks=pytest.mark.slow)])
def test_programs_of_any_names_reach_data_alone(
    count: int, program: tuple[str, dict[str, torch.Tensor]], tmp_path: Path
) -> None:
    names, ran = Names(count), 0
    forwards = {kind: kind.forward for kind in vars(nn).values() if isinstance(kind, type) and hasattr(kind, "forward")}
    for _ in range(count):
        made, steps = ["x"], []
        for i in range(names.random.randrange(1, 4)):
            steps.append(names.step(f"v{i}", made))
            made.append(f"v{i}")
        ran += runs(program, steps, tmp_path / "m.gw")
        assert not TOUCHED, steps
    assert all(kind.forward is forward for kind, forward in forwards.items())
    assert ran or count < 1000  # of those drawn blindly only few load


def runs(program: Any, steps: list[Step], file: Path) -> bool:
    """Load and run a program; tell whether it got so far. Fails where it reached what is no data."""
    try:
        gm = graphwright.load(crafted(program, steps, file))
    except LoadError:
        return False
    with torch.random.fork_rng(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            value = gm(torch.ones(2, 2))
        except Exception:  # whatever torch says of such arguments
            return True
        reached = [item for item in held(value) if isinstance(item, _REACHED) or item is sys.modules]
    assert not reached, (steps, reached)
    return True


# ---- what `allow` opens


REACHING = "tests.runtime.reaching"
COMPUTES = ("harmless", "helper", "_wrapped")
OWN = {name: value for name, value in vars(reaching).items() if getattr(value, "__module__", "") == REACHING}
REACHES = [name for name, value in OWN.items() if name not in COMPUTES and not isinstance(value, type)]


@pytest.mark.parametrize("name", [*REACHES, "Loads.loaded", "Reader", "Heir"])
def test_functions_of_an_allowed_package_that_reach_files_are_refused(
    name: str, program: tuple[str, dict[str, torch.Tensor]], tmp_path: Path
) -> None:
    file = crafted(program, [calls("a", f"{REACHING}:{name}", X)], tmp_path / "model.gw")
    with pytest.raises(LoadError, match="reaches what no file may") as refused:
        graphwright.load(file, allow=["tests"])
    assert f"allow=['{REACHING}:{name}']" in str(refused.value)
    assert graphwright.load(file, allow=["tests", f"{REACHING}:{name}"]) is not None


@pytest.mark.parametrize("name", ["numpy:ndarray", "numpy.random:RandomState", "functools:partial"])
def test_classes_of_an_allowed_package_that_are_made_in_another_language_are_refused(
    name: str, program: tuple[str, dict[str, torch.Tensor]], tmp_path: Path
) -> None:
    """`numpy.ndarray((1,), "O", buffer)` takes the numbers of an array as addresses of objects."""
    file = crafted(program, [calls("a", name, X)], tmp_path / "model.gw")
    with pytest.raises(LoadError, match="runs no code that could be looked at"):
        graphwright.load(file, allow=["numpy", "functools"])
    assert graphwright.load(file, allow=[name]) is not None


def test_arrays_are_not_made_of_addresses(program: tuple[str, dict[str, torch.Tensor]], tmp_path: Path) -> None:
    name = "numpy.lib.stride_tricks:as_strided"
    with pytest.raises(LoadError, match="'__array_interface__' in numpy"):
        graphwright.load(crafted(program, [calls("a", name, X, [100], [8])], tmp_path / "model.gw"), allow=["numpy"])


def test_functions_of_an_allowed_package_that_compute_are_called(
    program: tuple[str, dict[str, torch.Tensor]], tmp_path: Path
) -> None:
    file = crafted(program, [calls("a", f"{REACHING}:harmless", X)], tmp_path / "model.gw")
    with pytest.raises(LoadError, match="not allowed"):
        graphwright.load(file)
    assert graphwright.load(file, allow=["tests"])(torch.ones(1)).item() == 2
