"""Signatures: a captured program is called as the original is, and refuses the calls that the original refuses."""

from __future__ import annotations

import functools
import inspect
import pickle
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

import graphwright
from graphwright import CaptureError, GuardError, trace

X, Y = torch.randn(2, 3), torch.randn(2, 3)
_UNSET = object()


def plain(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    return x - y


def with_defaults(x: torch.Tensor, scale: float = 2.0, shift: int = 1, *, name: str = "sum") -> torch.Tensor:
    return x * scale + shift


def positional_only(x: torch.Tensor, y: torch.Tensor = Y, /, z: int = 3) -> torch.Tensor:
    return x - y * z


def keyword_only(x: torch.Tensor, *, y: torch.Tensor, z: int = 3) -> torch.Tensor:
    return x - y * z


def variadic(x: torch.Tensor, *rest: torch.Tensor, flag: bool = False, **named: torch.Tensor) -> torch.Tensor:
    for item in rest:
        x = x - item
    for item in named.values():
        x = x * item
    return -x if flag else x


def all_kinds(a: Any, b: Any = 1, /, c: Any = 2, *args: Any, d: Any, e: Any = None, **kwargs: Any) -> tuple[Any, ...]:
    return a * b, c, args, d, e, kwargs


def mutable_default(x: torch.Tensor, sizes: list[int] = [1, 2], table: dict[str, int] = {}) -> torch.Tensor:  # noqa: B006
    return x * sizes[0] + sizes[1] + len(table)


def object_default(x: torch.Tensor, y: Any = _UNSET) -> torch.Tensor:
    return x if y is _UNSET else x + y


def reserved(self: torch.Tensor, torch: float = 1.0, lambda_: int = 3) -> Any:  # the names of other things
    return self * torch + lambda_


def decorator(function: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(function)
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        return function(*args, **kwargs) + 1

    return wrapper


@decorator
def decorated(x: torch.Tensor, y: torch.Tensor = Y, *, n: int = 1) -> torch.Tensor:
    return x * n - y


class Scaler:
    """Called as an object, by method, by class and without either."""

    def __init__(self, by: float = 2.0) -> None:
        self.by = by

    def __call__(self, x: torch.Tensor, shift: float = 0.0) -> torch.Tensor:
        return x * self.by + shift

    def method(self, x: torch.Tensor, *, shift: float = 0.0) -> torch.Tensor:
        return x * self.by + shift

    @classmethod
    def of_class(cls, x: torch.Tensor, shift: float = 0.0) -> torch.Tensor:
        return x + shift

    @staticmethod
    def of_none(x: torch.Tensor, shift: float = 0.0) -> torch.Tensor:
        return x + shift


class Module(nn.Module):
    def forward(self, x: torch.Tensor, mask: torch.Tensor | None = None, *more: int, flag: bool = False) -> Any:
        return (x if mask is None else x * mask), more, flag


class Decorated(nn.Module):
    @decorator
    def forward(self, x: torch.Tensor, /, n: int = 2) -> torch.Tensor:
        return x * n


class Static(nn.Module):
    @staticmethod
    def forward(x: torch.Tensor, n: int = 2) -> torch.Tensor:
        return x * n


def of_instance() -> nn.Module:
    module = nn.Identity()
    module.forward = lambda x, *, by=3: x * by  # type: ignore[method-assign, assignment]
    return module


Call = tuple[tuple[Any, ...], dict[str, Any]]


def call(*args: Any, **kwargs: Any) -> Call:
    return args, kwargs


# The program, the example, calls that work and calls that do not.
CASES: list[Any] = [
    pytest.param(plain, call(X, Y), [call(X, y=Y), call(y=X, x=Y)], [call(X), call(X, Y, X), call(X, z=Y)], id="plain"),
    pytest.param(
        with_defaults, call(X), [call(X, 3.0), call(X, shift=4), call(scale=0.5, x=Y)],
        [call(), call(X, 1.0, 2, "sum"), call(X, x=X)], id="defaults",
    ),
    pytest.param(
        positional_only, call(X), [call(X, X), call(X, X, 4), call(X, z=5)], [call(x=X), call(X, y=Y)], id="positional",
    ),
    pytest.param(
        keyword_only, call(X, y=Y), [call(x=Y, y=X), call(X, z=7, y=Y)], [call(X, Y), call(X)], id="keyword-only",
    ),
    pytest.param(variadic, call(X), [call(Y)], [call(), call(X, x=Y)],
                 id="variadic, nothing given"),
    pytest.param(
        variadic, call(X, Y, X, flag=True, a=X, b=Y), [call(Y, X, Y, flag=True, a=Y, b=X)], [call(flag=True)],
        id="variadic",
    ),
    pytest.param(
        all_kinds, call(X, 2, 3, Y, 4, d=X, e=5, f=Y, **{"not a name": 6}),
        [call(Y, 3, 4, X, 5, d=Y, e=6, f=X, **{"not a name": 7})], [call(X, 2, 3), call(d=X)], id="all kinds",
    ),
    pytest.param(all_kinds, call(X, d=None), [call(Y, d=None), call(X, 2, c=4, d=None)], [call(X)], id="few given"),
    pytest.param(mutable_default, call(X), [call(Y), call(X, [3, 4]), call(X, sizes=[5, 6])], [], id="mutable default"),
    pytest.param(object_default, call(X), [call(Y)], [call()], id="object default"),
    pytest.param(object_default, call(X, Y), [call(Y, y=X)], [call(X, z=Y)], id="object default, another given"),
    pytest.param(reserved, call(X), [call(X, 2.0), call(Y, lambda_=4)], [call(), call(x=X)], id="reserved names"),
    pytest.param(decorated, call(X), [call(X, X), call(X, n=4, y=X)], [call(X, Y, 3), call()], id="decorated"),
    pytest.param(
        functools.partial(with_defaults, scale=3.0), call(X), [call(X, shift=2), call(X, scale=2.0)],
        [call(X, 2.0), call()], id="partial by name",
    ),
    pytest.param(functools.partial(plain, X), call(Y), [call(y=X)], [call(Y, X), call(x=Y)], id="partial by position"),
    pytest.param(Scaler(), call(X), [call(X, 2.0), call(X, shift=3.0)], [call(), call(y=X)], id="callable object"),
    pytest.param(Scaler().method, call(X), [call(X, shift=2.0)], [call(X, 2.0), call()], id="bound method"),
    pytest.param(Scaler.of_class, call(X), [call(X, 2.0)], [call(X, 2.0, 3)], id="class method"),
    pytest.param(Scaler().of_none, call(X), [call(x=X, shift=1.0)], [call(X, y=2)], id="static method"),
    pytest.param(lambda x, y=2: x * y, call(X), [call(X, 3), call(y=4, x=Y)], [call(), call(X, z=1)], id="lambda"),
    pytest.param(Module(), call(X), [call(Y), call(x=Y)], [call(), call(X, y=3)], id="module"),
    pytest.param(Module(), call(X, Y, 1, 2, flag=True), [call(Y, X, 3, 4, flag=True)], [call()], id="variadic module"),
    pytest.param(Decorated(), call(X), [call(X, 3), call(X, n=4)], [call(x=X), call()], id="decorated forward"),
    pytest.param(Static(), call(X), [call(X, 3), call(n=4, x=X)], [call(X, 3, 4), call()], id="static forward"),
    pytest.param(of_instance(), call(X), [call(X, by=4)], [call(X, 4), call()], id="forward of the instance"),
]  # fmt: skip


@pytest.mark.parametrize(("program", "example", "right", "wrong"), CASES)
def test_signatures(program: Any, example: Call, right: list[Call], wrong: list[Call]) -> None:
    gm = trace(program, *example)
    function = program.forward if isinstance(program, nn.Module) else program
    assert facts(gm.forward) == facts(function)
    for args, kwargs in [example, *right]:
        check_same(gm(*args, **kwargs), program(*args, **kwargs))
    for args, kwargs in wrong:
        with pytest.raises(TypeError):
            program(*args, **kwargs)
        with pytest.raises(TypeError):
            gm(*args, **kwargs)
    several = trace(program, examples=[example, *[each for each in right if each[0] and each[0][0] is Y]])
    assert facts(several.forward) == facts(function)
    check_same(several(*example[0], **example[1]), program(*example[0], **example[1]))


def facts(function: Any) -> Any:
    """A signature as what can be compared: tensors, which may be defaults, by identity."""
    signature = inspect.signature(function)
    defaults = [parameter.default for parameter in signature.parameters.values()]
    return (
        [(parameter.name, parameter.kind, parameter.annotation) for parameter in signature.parameters.values()],
        [id(default) if isinstance(default, torch.Tensor) else default for default in defaults],
        signature.return_annotation,
    )


def check_same(one: Any, other: Any) -> None:
    if isinstance(one, torch.Tensor):
        torch.testing.assert_close(one, other)
    elif isinstance(one, dict):
        assert list(one) == list(other)
        check_same(tuple(one.values()), tuple(other.values()))
    elif isinstance(one, tuple | list):
        assert type(one) is type(other) and len(one) == len(other)
        for a, b in zip(one, other, strict=True):
            check_same(a, b)
    else:
        assert one == other


def test_wrong_calls_say_what_eager_says() -> None:
    gm = trace(Module(), X)
    with pytest.raises(TypeError, match=r"Module\.forward\(\) got an unexpected keyword argument 'y'"):
        gm(X, y=3)
    with pytest.raises(TypeError, match=r"Module\.forward\(\) missing 1 required positional argument: 'x'"):
        gm()


def test_extra_keywords_may_be_tensors_and_numbers() -> None:
    def program(x: torch.Tensor, **named: Any) -> torch.Tensor:
        return x * named["scale"] + named["shift"]

    gm = trace(program, (X,), {"scale": 2.0, "shift": Y})
    torch.testing.assert_close(gm(Y, scale=3.5, shift=X), program(Y, scale=3.5, shift=X))
    with pytest.raises(GuardError, match="the keys of argument 'named' were"):
        gm(Y, scale=3.5, shift=X, more=X)
    fixed = trace(program, (X,), {"scale": 2.0, "shift": Y}, static=["scale"])
    with pytest.raises(GuardError, match=r"argument 'scale' was 2\.0"):
        fixed(Y, scale=3.5, shift=X)


def test_signatures_survive_pickle_and_edits() -> None:
    gm = pickle.loads(pickle.dumps(trace(with_defaults, X)))
    assert inspect.signature(gm.forward) == inspect.signature(with_defaults)
    with gm.graph.inserting_after(gm.graph.find_nodes(op="placeholder")[-1]):
        gm.graph.placeholder("more").meta["parameter_kind"] = inspect.Parameter.KEYWORD_ONLY
    assert list(inspect.signature(gm.forward).parameters) == ["x", "scale", "shift", "name", "more"]


# ---- names of inputs


def nested(x: torch.Tensor, past: Any, config: Any = None, n: int = 2, flag: bool = False) -> torch.Tensor:
    for item in past:
        x = x + item[0].reshape(item[0].size(0), -1)
    if config is not None and config["on"]:
        x = x * config["by"]
    return -x.expand(n, *x.shape) if flag else x.expand(n, *x.shape)


PAST = ([X, Y], (Y,))


def test_static_and_dynamic_name_what_containers_hold() -> None:
    gm = trace(nested, (X, PAST), {"config": {"on": True, "by": 3}}, static=["past_0_0", "config_by"])
    assert "3" in gm.code and "reshape(2, -1)" in gm.code
    with pytest.raises(GuardError, match="argument 'config_by' was 3"):
        gm(X, PAST, config={"on": True, "by": 4})
    other = torch.randn(1, 3), torch.randn(1, 3)
    with pytest.raises(GuardError, match="this was 2; now it is 1"):
        gm(other[0], ([other[0], X], (other[1],)), config={"on": True, "by": 3})


def test_static_and_dynamic_reach_into_containers() -> None:
    gm = trace(nested, (X, PAST), {"config": {"on": True, "by": 3}}, static=["past", "config"])
    assert gm.code.count("reshape(2, -1)") == 2
    gm = trace(nested, (X, PAST), {"config": {"on": True, "by": 3}}, dynamic=["config", "flag"])
    for on in (True, False):
        for flag in (True, False):
            arguments = {"config": {"on": on, "by": 4}, "flag": flag, "n": 5}
            torch.testing.assert_close(gm(X, PAST, **arguments), nested(X, PAST, **arguments))


UNKNOWN: list[Any] = [
    pytest.param({"static": ["z"]}, "static names 'z', which is no input of the program", id="static"),
    pytest.param({"dynamic": ["flags", "x"]}, "dynamic names 'flags'", id="dynamic"),
    pytest.param({"static": ["past_0_5"]}, "static names 'past_0_5'", id="beyond the end"),
    pytest.param({"dynamic": ["config"]}, "dynamic names 'config', which is None: only bools can stay open", id="None"),
]


@pytest.mark.parametrize(("options", "message"), UNKNOWN)
def test_unknown_names_are_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(CaptureError, match=message):
        trace(nested, (X, PAST), **options)


def test_the_nearest_name_is_told() -> None:
    with pytest.raises(CaptureError, match=r"fix: name one of its inputs: did you mean 'flag'\?"):
        trace(nested, (X, PAST), dynamic=["flg"])


def test_the_names_that_there_are_are_listed() -> None:
    with pytest.raises(CaptureError) as caught:
        trace(nested, (X, PAST), static=["y", "w"])
    assert str(caught.value) == (
        "static names 'w', 'y', which is no input of the program\n"
        "  fix: name one of its inputs: there are 'x', 'past', 'past_0', 'past_0_0', 'past_0_1', 'past_1', 'past_1_0', "
        "'config', 'n', 'flag'"
    )


def test_a_file_keeps_names_kinds_and_defaults(tmp_path: Any) -> None:
    graphwright.save(trace(with_defaults, X), tmp_path / "scale.gw", strict=True)
    loaded = inspect.signature(graphwright.load(tmp_path / "scale.gw").forward)
    assert str(loaded) == (
        "(x: torch.Tensor, scale: float = 2.0, shift: int = 1, *, name: str = 'sum') -> torch.Tensor"
    )
