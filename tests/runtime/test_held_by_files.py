"""Files whose modules, hooks and contexts would give a program what can be called, or outlast it."""

from __future__ import annotations

import copy
import functools
import json
import sys
import time
import types
import weakref
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from tests.runtime.test_costly_files import Data, Parts, changed
from tests.runtime.test_strangers import SPACE, A, Step, X, calls, crafted, method, named, program, reads  # noqa: F401
from torch import nn

import graphwright
from graphwright.errors import GraphwrightError, LoadError
from graphwright.runtime.packaging.weights import save_tensors
from graphwright.runtime.saving import saving

CALL: list[Step] = [("a", "call_module", "inner", [X])]
HOLDS_ROOT = {"partial": ["builtins:slice", [{"module": 0}], []]}


def held(value: Any, name: str = "forward", kind: str = "torch.nn:Linear") -> Callable[[Data], None]:
    def change(data: Data) -> None:
        data["modules"][1]["class"] = kind
        data["modules"][1]["attributes"][name] = value

    return change


def in_table(data: Data) -> None:
    """An object that is filled after the partial was read."""
    data["objects"].append({"list": [{"module": 0}]})
    held({"partial": ["operator:getitem", [{"at": len(data["objects"]) - 1}], []]})(data)


def hooked(hook: Any) -> Callable[[Data], None]:
    return lambda data: data["modules"][1].update(hooks=[["_forward_pre_hooks", hook, False, False]])


HELD: dict[str, tuple[Callable[[Data], None], str]] = {
    "a partial of a module": (held(HOLDS_ROOT), "as an argument"),
    "a partial of what holds a module": (in_table, "as an argument"),
    "a partial of a function": (held({"partial": ["builtins:slice", [{"name": "torch:relu"}], []]}), "as an argument"),
    "such a partial as an activation": (held(HOLDS_ROOT, "activation"), "as an argument"),
    "a weak reference to a module": (held({"weak": {"module": 0}}), "'forward' of a module"),
    "a class of modules": (held({"name": "torch.nn:Linear"}), "'forward' of a module"),
    "a partial of such a class": (held({"partial": ["torch.nn:Linear", [], []]}), "'forward' of a module"),
    "an activation that makes modules": (
        held({"name": "torch.nn:ReLU"}, "activation", "torch.nn:TransformerEncoderLayer"),
        "'activation' of a module",
    ),
    "an error that ends Python": (held({"name": "builtins:SystemExit"}), "'forward' of a module"),
    "a method that gets a function": (held({"name": "builtins:callable"}, "_apply"), "'_apply' of a module"),
    "a call that is compiled": (held({"name": "torch:relu"}, "_compiled_call_impl"), "'_compiled_call_impl' of a"),
    "a hook that keeps the module": (hooked({"partial": ["builtins:dict.get", [{"dict": []}], []]}), "as a hook"),
    "a hook of torch's": (hooked({"name": "torch:typename"}), "as a hook"),
    "a hook that is a class": (hooked({"name": "builtins:slice"}), "as a hook"),
}


@pytest.mark.parametrize("name", HELD)
def test_what_a_module_calls_gives_a_program_no_module(name: str, program: Parts, tmp_path: Path) -> None:  # noqa: F811
    change, message = HELD[name]
    with pytest.raises(LoadError, match=message):
        graphwright.load(crafted(changed(program, change), CALL, tmp_path / "bad.gw"))


@pytest.mark.parametrize("kind", ["torch.nn:Identity", "torch.nn:Linear"])
def test_modules_of_torch_are_given_no_functions(kind: str, program: Parts, tmp_path: Path) -> None:  # noqa: F811
    steps: list[Step] = [("a", "call_module", "inner", [named("builtins:object")])]
    change = held({"name": "builtins:callable"}, "forward", kind)
    with pytest.raises(LoadError, match="may not use the class object as a value"):
        graphwright.load(crafted(changed(program, change), steps, tmp_path / "bad.gw"))


def test_functions_that_compute_are_held_and_called(program: Parts, tmp_path: Path) -> None:  # noqa: F811
    value = {"partial": ["torch.nn.functional:softplus", [], [["beta", 2.0]]]}
    gm = graphwright.load(crafted(changed(program, held(value)), CALL, tmp_path / "good.gw"))
    assert torch.equal(gm(torch.ones(2)), nn.functional.softplus(torch.ones(2), beta=2.0))


def test_what_no_file_may_hold_is_left_out(tmp_path: Path) -> None:
    gm = graphwright.symbolic_trace(nn.Sequential(nn.Linear(2, 2)))
    expected = gm(torch.ones(1, 2))
    layer = gm.get_submodule("0")
    layer.act = functools.partial(slice, layer)
    layer.half = torch.relu
    layer.owner = weakref.ref(layer)
    layer.register_forward_hook(torch.typename)
    with pytest.warns(UserWarning, match="runs without hooks"):
        left_out = graphwright.save(gm, tmp_path / "model.gw")
    assert sorted(line.partition(":")[0] for line in left_out) == ["0._forward_hooks", "0.act", "0.half", "0.owner"]
    assert torch.equal(graphwright.load(tmp_path / "model.gw")(torch.ones(1, 2)), expected)


def test_the_attributes_of_what_can_be_called_are_not_listed(program: Parts, tmp_path: Path) -> None:  # noqa: F811
    steps = [calls("a", "graphwright.runtime:attributes_of", X), calls("b", "builtins:len", A)]
    gm = graphwright.load(crafted(program, steps, tmp_path / "good.gw"))
    assert gm(types.SimpleNamespace(width=2, act=len)) == 1
    for value in (nn.ReLU(), nn.ReLU, len, gm.graph):
        with pytest.raises(GraphwrightError, match="may not list the attributes of"):
            gm(value)
    graphwright.save(gm, tmp_path / "again.gw")
    assert graphwright.load(tmp_path / "again.gw")(types.SimpleNamespace(width=2)) == 1


# ---- errors and contexts


@pytest.mark.parametrize("kind", ["SystemExit", "KeyboardInterrupt", "BaseException", "GeneratorExit"])
def test_no_program_makes_an_error_that_ends_python(kind: str, program: Parts, tmp_path: Path) -> None:  # noqa: F811
    steps = [calls("a", f"builtins:{kind}", 1), calls("b", "graphwright.ops:raise_error", A)]
    with pytest.raises(LoadError, match=f"builtins:{kind}: a program may not make one"):
        graphwright.load(crafted(program, steps, tmp_path / "bad.gw"))


ENTER, EXIT = "graphwright.ops:enter_context", "graphwright.ops:exit_context"
ENTERED = calls("a", ENTER, named("torch:no_grad"))
LASTING: dict[str, list[Step]] = {
    "never left": [ENTERED, calls("b", "torch:relu", X)],
    "left by a part of it": [ENTERED, calls("l", "builtins:list", {"tuple": [A]}), calls("b", EXIT, A)],
    "left before another one": [ENTERED, calls("c", ENTER, named("torch:enable_grad")), calls("b", EXIT, A)],
}


@pytest.mark.parametrize("name", LASTING)
def test_no_context_lasts_longer_than_the_program(name: str, program: Parts, tmp_path: Path) -> None:  # noqa: F811
    with pytest.raises(LoadError, match="it enters a context that it does not leave"):
        graphwright.load(crafted(program, LASTING[name], tmp_path / "bad.gw"))


def test_a_context_that_is_left_is_entered(program: Parts, tmp_path: Path) -> None:  # noqa: F811
    steps = [ENTERED, calls("b", "torch:relu", X), calls("c", EXIT, A), calls("d", "torch:neg", {"node": "b"})]
    gm = graphwright.load(crafted(program, steps, tmp_path / "good.gw"))
    assert not gm(torch.ones(1, requires_grad=True)).requires_grad
    assert torch.is_grad_enabled()


# ---- classes of allowed packages


MEMMAP = [named("numpy:memmap"), "owned", "uint8", "w+"]
MADE: dict[str, list[Step]] = {
    "by a checkpoint": [calls("a", "torch.utils.checkpoint:checkpoint", *MEMMAP)],
    "by a key": [calls("a", "builtins:sorted", ["owned"], key=MEMMAP[0])],
    "by entering it": [calls("a", ENTER, *MEMMAP), calls("b", EXIT, A)],
    "without its constructor": [calls("a", "graphwright.runtime:new_object", MEMMAP[0])],
}


@pytest.mark.parametrize("name", MADE)
def test_a_class_that_reaches_files_is_made_nowhere(name: str, program: Parts, tmp_path: Path) -> None:  # noqa: F811
    with pytest.raises(LoadError, match=r"(?s)numpy:memmap|numpy\..*memmap: making one reaches what no file may"):
        graphwright.load(crafted(program, MADE[name], tmp_path / "bad.gw"), allow=["numpy"])


# ---- what loading imports


LAZY = ["graphwright:onnx", "numpy:f2py", "torch:_inductor", "torch.nn.backends.thnn:x", "torch.nn.attention.varlen:x"]


@pytest.mark.parametrize("name", LAZY)
def test_what_nobody_asked_for_is_not_imported(
    name: str,
    program: Parts,  # noqa: F811
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    module = name.replace(":", ".").removesuffix(".x")
    monkeypatch.delitem(sys.modules, module, raising=False)
    owner, _, attribute = module.rpartition(".")
    if owner in sys.modules:
        monkeypatch.delitem(vars(sys.modules[owner]), attribute, raising=False)
    with pytest.raises(LoadError, match=r"there is no|is not allowed"):
        graphwright.load(crafted(program, [calls("a", name, X)], tmp_path / "bad.gw"))
    assert module not in sys.modules


# ---- tensors, types


def with_layout(program: Parts, file: Path, **layout: Any) -> Path:  # noqa: F811
    text, tensors = program
    save_tensors(tensors, file, {saving.NOTE: text, "layouts": json.dumps({"inner.bias": layout})})
    return file


@pytest.mark.parametrize("dtype", ["quint8", "qint32", "_inductor", "Tensor", "__name__", 3])
def test_a_tensor_is_of_a_dtype_that_is_saved(dtype: Any, program: Parts, tmp_path: Path) -> None:  # noqa: F811
    with pytest.raises(LoadError, match="is of no dtype that a file may have"):
        graphwright.load(with_layout(program, tmp_path / "bad.gw", dtype=dtype))


def test_sizes_are_not_multiplied_without_end(program: Parts, tmp_path: Path) -> None:  # noqa: F811
    sizes = [10**4_000] * 500  # whose product took a quarter of a minute
    began = time.process_time()
    with pytest.raises(LoadError, match="larger than the memory"):
        graphwright.load(with_layout(program, tmp_path / "bad.gw", size=sizes, stride=[0] * 500, offset=0))
    assert time.process_time() - began < 5


@pytest.mark.parametrize(
    "text", ["numpy.ctypeslib.ctypes.cdll['a.so']", "random._os.environ['HOME']", "numpy_1.ctypeslib.ctypes.cdll['a']"]
)
def test_a_name_that_leads_to_no_type_is_no_annotation(text: str, program: Parts, tmp_path: Path) -> None:  # noqa: F811
    def change(data: Data) -> None:
        data["modules"][0]["program"]["nodes"][0][5] = text

    with pytest.raises(LoadError, match="may not have the annotation"):
        graphwright.load(crafted(changed(program, change), [calls("a", "numpy:add", X, 1)], tmp_path / "bad.gw"))


# ---- kernels that write unchecked


@pytest.mark.parametrize("norm", [nn.utils.parametrizations.weight_norm, nn.utils.weight_norm])
@pytest.mark.filterwarnings("ignore:.*weight_norm.* is deprecated:FutureWarning")
def test_a_weight_norm_of_other_sizes_is_an_error(norm: Callable[[nn.Module], nn.Module], tmp_path: Path) -> None:
    """Torch's kernel would write a norm for each row into memory for one."""
    gm = graphwright.symbolic_trace(nn.Sequential(norm(nn.Linear(3, 3))))
    graphwright.save(gm, tmp_path / "good.gw")
    loaded = graphwright.load(tmp_path / "good.gw")
    assert torch.equal(loaded(torch.ones(1, 3)), gm(torch.ones(1, 3)))
    graphwright.save(copy.deepcopy(loaded), tmp_path / "again.gw")
    assert torch.equal(graphwright.load(tmp_path / "again.gw")(torch.ones(1, 3)), gm(torch.ones(1, 3)))
    for name, parameter in loaded.named_parameters():
        if name.endswith(("original0", "weight_g")):
            parameter.data = torch.ones(1, 1)
    with pytest.raises(GraphwrightError, match="has other sizes than"):
        loaded(torch.ones(1, 3))


def test_a_program_is_given_the_check(program: Parts, tmp_path: Path) -> None:  # noqa: F811
    steps = [calls("g", "torch:ones", 1, 1), calls("a", "torch:_weight_norm", X, {"node": "g"}, 0)]
    gm = graphwright.load(crafted(program, steps, tmp_path / "bad.gw"))
    assert torch.equal(gm(torch.ones(1, 4)), torch.full((1, 4), 0.5))
    with pytest.raises(GraphwrightError, match="has other sizes than"):
        gm(torch.ones(1_000, 2))
    graphwright.save(gm, tmp_path / "again.gw")
    assert '"torch:_weight_norm"' in (tmp_path / "again.gw").read_text(errors="ignore").replace("\\", "")


@pytest.mark.parametrize("name", ["torch:fused_moving_avg_obs_fake_quant", "torch.ops:aten._weight_norm.default"])
def test_what_observes_rows_is_allowed_by_its_name_alone(name: str, program: Parts, tmp_path: Path) -> None:  # noqa: F811
    file = crafted(program, [calls("a", name, X)], tmp_path / "model.gw")
    with pytest.raises(LoadError, match="nothing checks that"):
        graphwright.load(file)
    assert graphwright.load(file, allow=[name]) is not None
