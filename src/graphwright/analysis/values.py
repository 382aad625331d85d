"""Values as flat lists of facts, and the comparison of two such lists.

What a program returns is a tree: a ModelOutput of tensors, a dict of tuples, a cache object. Flattening it into
facts, each with the path that leads there (`output.logits[0]`), makes comparing two of them a walk over paths, and
keeps what was seen: tensors are copied, so that later runs cannot change them.
"""

from __future__ import annotations

import copy
import dataclasses
import enum
import math
import types
from collections import Counter, OrderedDict, defaultdict, deque
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import torch
from torch import Tensor, nn

from graphwright.analysis.report import Difference

CONTAINERS = (list, dict, set, deque, OrderedDict, defaultdict, Counter)  # that hold the values of programs


@dataclasses.dataclass(frozen=True, slots=True)
class Fact:
    """What is at one path: its kind, which must be equal, and its value, which must be equal or close."""

    path: str
    kind: str
    value: Any = None


@dataclasses.dataclass(frozen=True, slots=True)
class Tolerance:
    """How far numbers may lie apart: |a - b| <= atol + rtol * |a|. None: by dtype, as `torch.testing` does it.

    >>> Tolerance().of(torch.float32)
    (1.3e-06, 1e-05)
    >>> Tolerance(atol=0.5).of(torch.float32)
    (0.0, 0.5)
    """

    rtol: float | None = None
    atol: float | None = None

    def of(self, dtype: torch.dtype) -> tuple[float, float]:
        """Return (rtol, atol) for values of a dtype; both are 0 for integers and booleans."""
        if not (dtype.is_floating_point or dtype.is_complex):
            return 0.0, 0.0
        if self.rtol is None and self.atol is None:
            return _BY_DTYPE.get(dtype, (0.0, 0.0))
        return self.rtol or 0.0, self.atol or 0.0


_BY_DTYPE = {
    torch.float16: (1e-3, 1e-5),
    torch.bfloat16: (1.6e-2, 1e-5),
    torch.float32: (1.3e-6, 1e-5),
    torch.complex64: (1.3e-6, 1e-5),
    torch.float64: (1e-7, 1e-7),
    torch.complex128: (1e-7, 1e-7),
}


# ---- flattening


def facts_of(value: Any, path: str) -> list[Fact]:
    """Flatten a value: one fact per container, tensor and plain value inside, tensors detached and copied.

    >>> for fact in facts_of({"n": 3, "x": torch.zeros(2)}, "output"): print(fact.path, "|", fact.kind)
    output | dict with keys 'n', 'x'
    output['n'] | int
    output['x'] | Tensor float32 (2,) cpu
    """
    return list(_flatten(value, path, ()))


def _flatten(value: Any, path: str, inside: tuple[int, ...]) -> Iterator[Fact]:
    if isinstance(value, Tensor):
        yield from _flatten_tensor(value, path)
        return
    if value is None or isinstance(value, _PLAIN):
        yield Fact(path, _type_name(type(value)), value)
        return
    if isinstance(value, nn.Module):
        yield Fact(path, "module")
        return
    if hasattr(value, "__array__"):  # NumPy's arrays and scalars
        yield from _flatten_array(value, path)
        return
    if id(value) in inside:
        yield Fact(path, "the container it is in")
        return
    inside = (*inside, id(value))
    kind, children = _open(value, path)
    yield Fact(path, kind, value if children is None else None)
    for child_path, child in children or ():
        yield from _flatten(child, child_path, inside)


_PLAIN = (bool, int, float, complex, str, bytes, enum.Enum, type, torch.dtype, torch.device, torch.layout, torch.Size)


def _open(value: Any, path: str) -> tuple[str, list[tuple[str, Any]] | None]:
    """Return the kind of a container and its children with their paths; no children (None) for what is opaque."""
    name = _type_name(type(value))
    if dataclasses.is_dataclass(value):
        names = [field.name for field in dataclasses.fields(value)]
        return name, [(f"{path}.{field}", getattr(value, field)) for field in names if hasattr(value, field)]
    if isinstance(value, Mapping):
        keys = list(value)
        return f"{name} with keys {', '.join(map(repr, keys))}", [(f"{path}[{key!r}]", value[key]) for key in keys]
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return name, [(f"{path}.{field}", item) for field, item in zip(value._fields, value, strict=True)]
    if isinstance(value, tuple | list | deque):
        return f"{name} of {len(value)}", [(f"{path}[{i}]", item) for i, item in enumerate(value)]
    if isinstance(value, _CALLABLES):
        return name, None
    state = _attributes(value)
    return name, [(f"{path}.{key}", item) for key, item in state.items()] if state is not None else None


_CALLABLES = (types.FunctionType, types.BuiltinFunctionType, types.MethodType, types.ModuleType)


def _attributes(value: Any) -> dict[str, Any] | None:
    """The attributes of an object that knows no equality of its own, or None where it has none or compares itself."""
    if type(value) is types.SimpleNamespace:
        return dict(vars(value))
    if any("__eq__" in vars(kind) for kind in type(value).__mro__[:-1]):
        return None
    slots = [
        name
        for kind in type(value).__mro__
        for name in _names(kind.__dict__.get("__slots__", ()))
        if name not in ("__dict__", "__weakref__") and hasattr(value, name)
    ]
    state = {name: getattr(value, name) for name in slots} | dict(getattr(value, "__dict__", {}))
    state.pop("__orig_class__", None)  # which typing notes
    return state or None


def _names(slots: str | Iterable[str]) -> list[str]:
    return [slots] if isinstance(slots, str) else list(slots)


def _flatten_tensor(value: Tensor, path: str) -> Iterator[Fact]:
    wants_grad = " requires_grad" if value.requires_grad else ""
    name = _type_name(type(value)).removeprefix("torch.")
    kind = f"{name} {describe_tensor(value, ' ')} {value.device}{wants_grad}"
    if value.is_nested:
        yield Fact(path, f"{name} nested")
        for i, part in enumerate(value.unbind()):
            yield from _flatten_tensor(part, f"{path}[{i}]")
        return
    with torch.no_grad():
        copied = value.detach().clone()
        if copied.is_quantized:
            kind += f" {copied.qscheme()}"
            copied = copied.dequantize()
        if copied.layout != torch.strided:
            kind += f" {copied.layout}"
            copied = copied.to_dense()
    yield Fact(path, kind, copied)


def _flatten_array(value: Any, path: str) -> Iterator[Fact]:
    name = _type_name(type(value))
    try:
        copied = torch.as_tensor(value.__array__().copy())
    except TypeError:  # text or objects: no tensor holds them
        yield from _flatten(value.tolist(), path, ())
        return
    yield Fact(path, f"{name} {describe_tensor(copied, ' ')}", copied)


def _type_name(kind: type) -> str:
    return kind.__qualname__ if kind.__module__ in ("builtins", "torch") else f"{kind.__module__}.{kind.__qualname__}"


def tensors_in(value: Any) -> list[Tensor]:
    """The tensors inside a value, in the order of its facts."""
    found: list[Tensor] = []
    waiting, seen = [value], set()
    while waiting:
        item = waiting.pop()
        if isinstance(item, Tensor):
            found.append(item)
        elif item is not None and not isinstance(item, (*_PLAIN, nn.Module)) and id(item) not in seen:
            seen.add(id(item))
            waiting.extend(child for _, child in reversed(_open(item, "")[1] or ()))
    return found


def copied_inputs(inputs: Any) -> Any:
    """Copy inputs deeply: one object given twice, or views of one tensor, stay one; what was computed has no history.

    >>> x = torch.ones(2)
    >>> one, other = copied_inputs((x, x))
    >>> one is other, one is x
    (True, False)
    """
    memo: dict[int, Any] = {}
    for tensor in tensors_in(inputs):
        if tensor.requires_grad and not tensor.is_leaf:  # deepcopy refuses what has a history
            memo[id(tensor)] = tensor.detach().clone().requires_grad_()
    return copy.deepcopy(inputs, memo)


# ---- text


def describe_tensor(value: Tensor, between: str = "") -> str:
    """Write dtype and shape: `float32(2, 4)`."""
    return f"{str(value.dtype).removeprefix('torch.')}{between}{tuple(value.shape)}"


def describe_inputs(args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> str:
    """Write what a call is given, briefly.

    >>> describe_inputs((torch.zeros(2, 4), 3), {"mask": None})
    'float32(2, 4), 3, mask=None'
    """
    return ", ".join([*map(_brief, args), *(f"{name}={_brief(value)}" for name, value in kwargs.items())])


def _brief(value: Any) -> str:
    if isinstance(value, Tensor):
        return describe_tensor(value)
    if value is None or isinstance(value, bool | int | float | enum.Enum | torch.dtype | torch.device):
        return str(value)
    if isinstance(value, str) and len(value) <= 20:
        return repr(value)
    if isinstance(value, tuple | list) and 0 < len(value) <= 3:
        inner = ", ".join(map(_brief, value))
        return f"[{inner}]" if isinstance(value, list) else f"({inner})"
    return type(value).__name__


# ---- comparing


def compare_facts(original: list[Fact], captured: list[Fact], tolerance: Tolerance) -> tuple[list[Difference], float]:
    """Compare two flattened values: the places where they part, in order, and the largest absolute difference.

    Below a place where the structure differs, nothing more is said.

    >>> one, other = facts_of((1.0, "a"), "output"), facts_of((1.5, "a"), "output")
    >>> differences, error = compare_facts(one, other, Tolerance())
    >>> print(*differences, error)
    output[0]: 1.0 became 1.5 0.5
    """
    there = {fact.path: fact for fact in captured}
    known = {fact.path for fact in original}
    differences: list[Difference] = []
    worst = 0.0
    for fact in original:
        other = there.get(fact.path)
        if other is None:
            found: tuple[str, float] | None = (f"{fact.kind} is missing", math.inf)
        elif other.kind != fact.kind:
            found = (f"{fact.kind} became {other.kind}", math.inf)
        else:
            what, error = _compare_values(fact.value, other.value, tolerance)
            worst = max(worst, error)
            found = (what, error) if what else None
        if found and not any(_is_below(fact.path, difference.path) for difference in differences):
            differences.append(Difference(fact.path, found[0]))
            worst = max(worst, found[1])
    for fact in captured:
        if fact.path not in known and not any(_is_below(fact.path, difference.path) for difference in differences):
            differences.append(Difference(fact.path, f"{fact.kind} was not there before"))
            worst = math.inf
    return differences, worst


def largest_difference(original: Any, captured: Any) -> float:
    """Return the largest absolute difference between two values' numbers, infinite where their structure differs.

    >>> largest_difference([torch.zeros(2)], [torch.tensor([0.0, 0.5])])
    0.5
    """
    return compare_facts(facts_of(original, "value"), facts_of(captured, "value"), Tolerance())[1]


def _is_below(path: str, above: str) -> bool:
    return path.startswith((f"{above}[", f"{above}."))


def _compare_values(original: Any, captured: Any, tolerance: Tolerance) -> tuple[str, float]:
    """Return how two values of one kind differ ("" where they agree) and the largest absolute difference."""
    if isinstance(original, Tensor):
        return _compare_tensors(original, captured, tolerance)
    if isinstance(original, float | complex):
        dtype = torch.complex128 if isinstance(original, complex) else torch.float64
        what, error = _compare_tensors(
            torch.tensor(original, dtype=dtype), torch.tensor(captured, dtype=dtype), tolerance
        )
        return f"{original!r} became {captured!r}" if what else "", error
    if original is captured or _is_equal(original, captured):
        return "", 0.0
    if isinstance(original, int):
        return f"{original!r} became {captured!r}", float(abs(int(original) - int(captured)))
    return f"{original!r} became {captured!r}", math.inf


def _is_equal(original: Any, captured: Any) -> bool:
    if isinstance(original, types.FunctionType | types.MethodType | types.ModuleType):
        # The captured module has copies of its own of what the original's functions are bound to.
        return bool(getattr(original, "__qualname__", None) == getattr(captured, "__qualname__", None))
    try:
        return bool(original == captured)
    except Exception:  # a user's __eq__ may raise anything; then they are not known to be equal
        return False


def _compare_tensors(original: Tensor, captured: Tensor, tolerance: Tolerance) -> tuple[str, float]:
    """Compare two tensors of the same dtype and shape: NaN equals NaN, and an infinity equals itself."""
    if original.is_meta or original.numel() == 0:
        return "", 0.0
    rtol, atol = tolerance.of(original.dtype)
    with torch.no_grad():
        wide = _wide(original.dtype)
        a, b = original.to(wide), captured.to(wide)
        exact = not (original.dtype.is_floating_point or original.dtype.is_complex)
        if torch.equal(original, captured) if exact else torch.equal(a, b):
            return "", 0.0  # one pass in place of twelve
        same = original == captured if exact else (a == b) | (a.isnan() & b.isnan())
        gap = torch.where(same, torch.zeros((), dtype=wide, device=a.device), a - b).abs()
        gap = torch.where(gap.isnan(), torch.full_like(gap, math.inf), gap)
        bound = torch.nan_to_num(atol + rtol * a.abs(), nan=0.0, posinf=0.0)
        beyond = ~same if exact else gap > bound  # float64 cannot tell all int64 apart
        worst = float(gap.max())
        count = int(beyond.sum())
        if count == 0:
            return "", worst
        place = int(torch.where(beyond, gap, torch.full_like(gap, -1.0)).argmax())
        where = [int(i) for i in torch.unravel_index(torch.tensor(place), gap.shape)]
    at = f" at {where}" if where else ""
    allowed = f", allowed {atol:g} + {rtol:g} * |value|" if rtol or atol else ""
    one, other = original.flatten()[place].item(), captured.flatten()[place].item()
    return (
        f"values differ{at}: {_number(one)} became {_number(other)}; {count} of {gap.numel()} are beyond what is "
        f"allowed, largest absolute error {worst:.3g}{allowed}",
        worst,
    )


def _wide(dtype: torch.dtype) -> torch.dtype:
    return torch.complex128 if dtype.is_complex else torch.float64


def _number(value: complex | float | int) -> str:
    return f"{value:.6g}" if isinstance(value, float) else str(value)
