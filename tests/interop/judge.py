"""Judge the ways in and out on many programs: `python -m tests.interop.judge [export] [back] [fx] [compile]`.

Each section prints what was wanted, what came out, and `pass` or `miss`; the exit status tells of misses. The models of
the zoo lie beside the checkout (ZOO= names their folder); without them, sections judge the programs of the tests alone.
"""

from __future__ import annotations

import contextlib
import copy
import gc
import io
import logging
import os
import sys
import tempfile
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import torch
import torch._dynamo
from tests.interop import test_export as programs
from tests.zoo.judging import JUDGE
from torch import nn
from torch._dynamo.testing import CompileCounter
from torch.utils import _pytree as pytree

from graphwright import GraphwrightError, compile_backend, from_export, from_fx, to_export, to_fx, trace
from graphwright.passes import MergeSubexpressions, RemoveDeadValues

Call = tuple[tuple[Any, ...], dict[str, Any]]


class Program(NamedTuple):
    """A program, and calls of it: the first one is the example."""

    name: str
    module: Any
    calls: list[Call]


# ---- programs


def own_programs() -> Iterator[Program]:
    """The programs with branches and loops of the tests."""
    for program in programs.PROGRAMS:
        torch.manual_seed(0)
        module = program().eval() if isinstance(program, type) else program
        yield Program(program.__name__, module, [((torch.randn(n, 3) * 2,), {}) for n in (5, 2, 3, 4, 8, 1)])


def zoo_programs(kind: str, limit: int = 1000) -> Iterator[Program]:
    """Models of one set of the zoo that are not large: other batches, other sizes, and other ways."""
    if not JUDGE.exists():
        return
    sys.path.insert(0, str(JUDGE.parent))
    import zoo  # type: ignore[import-not-found]

    zoo.preload({kind})
    entries = [entry for entry in zoo.ZOO.values() if entry.set == kind and not entry.heavy]
    for entry in entries[:limit]:
        size, other = (*(entry.sizes or ()), None, None)[:2]
        torch.manual_seed(0)
        calls = [entry.inputs(entry.batch, size, 0)]
        calls += [entry.inputs(entry.batch2, size, 1)] if entry.batch2 else []
        calls += [entry.inputs(entry.batch, other, 2)] if other else []
        calls += [make() for name, make in entry.alts.items() if not name.startswith("raise")]
        yield Program(entry.name, entry.build().eval(), calls)


def same(one: Any, other: Any) -> bool:
    """Tell whether two results are close: tensors by value, numbers with the tensors that stand for them."""
    leaves, others = pytree.tree_leaves(one), pytree.tree_leaves(other)
    if len(leaves) != len(others):
        return False
    for a, b in zip(leaves, others, strict=True):
        if isinstance(a, str) or isinstance(b, str):
            if a != b:  # an error, or a text
                return False
        elif isinstance(a, torch.Tensor) or isinstance(b, torch.Tensor):
            a, b = torch.as_tensor(a), torch.as_tensor(b)
            if a.shape != b.shape or not torch.allclose(a.double(), b.double(), rtol=1e-3, atol=1e-4, equal_nan=True):
                return False
        elif a != b:
            return False
    return True


def result_of(function: Callable[..., Any], call: Call) -> Any:
    """What a call gives, and the tensors that it was given, as it leaves them; every call draws the same numbers."""
    args, kwargs = copy.deepcopy(call)
    torch.manual_seed(0)
    with contextlib.redirect_stdout(io.StringIO()):
        result = function(*args, **kwargs)
    return result, [leaf for leaf in pytree.tree_leaves((args, kwargs)) if isinstance(leaf, torch.Tensor)]


# ---- sections


def say(subject: str, wanted: str, value: str, holds: bool) -> bool:
    """Print one line of the table."""
    print(f"{subject:<58} {wanted:<22} {value:<44} {'pass' if holds else 'MISS'}", flush=True)
    return holds


def outcome(program: Program, convert: Callable[[Any, Call], Callable[..., Any]]) -> str:
    """Say how a conversion does on all calls: right, fixed (an error on some), refused, or wrong."""
    original, example = copy.deepcopy(program.module), program.calls[0]
    with warnings.catch_warnings(), torch.no_grad():
        warnings.simplefilter("ignore")
        gm = trace(copy.deepcopy(program.module), *example, target="export")
        try:
            made = convert(gm, example)
        except GraphwrightError as error:
            return f"refused: {str(error).splitlines()[0]}"
        found = "right"
        for call in program.calls:
            wanted = result_of(original, call)
            try:
                given = result_of(made, call)
            except Exception:  # the checks of an exported program raise what they like
                found = "fixed"
                continue
            if not same(wanted, given):
                return "wrong"
    return found


def tally(programs_: Iterator[Program], convert: Callable[[Any, Call], Callable[..., Any]]) -> dict[str, list[str]]:
    """Names of programs by what came of them."""
    found: dict[str, list[str]] = {"right": [], "fixed": [], "refused": [], "wrong": [], "no capture": []}
    for program in programs_:
        try:
            word, _, reason = outcome(program, convert).partition(": ")
        except GraphwrightError as error:
            word, reason = "no capture", str(error).splitlines()[0]
        found[word].append(program.name)
        if word != "right":
            print(f"    {program.name}: {word} {reason}"[:150], flush=True)
        gc.collect()
    return found


def control_flow() -> Iterator[Program]:
    """The control-flow set: the programs of the tests, and the hand-written models of the zoo."""
    yield from own_programs()
    yield from zoo_programs("classic")


def exported(gm: Any, example: Call) -> Callable[..., Any]:
    """The exported program as a function."""
    return to_export(gm, *example).module()


def judge_export() -> bool:
    """to_export on the control-flow set, and three of it through AOTInductor."""
    found = tally(control_flow(), exported)
    total = sum(map(len, found.values()))
    value = ", ".join(f"{len(names)} {word}" for word, names in found.items() if names)
    passed = say(f"to_export: {total} programs with control flow", "none wrong", value, not found["wrong"])
    named = {program.__name__: program for program in programs.PROGRAMS}
    right = 0
    for name in ("one_of_two", "Rows", "Halved"):
        module = named[name]() if isinstance(named[name], type) else named[name]
        calls = [((torch.randn(n, 3) * 2,), {}) for n in (5, 3, 8, 2)]
        right += outcome(Program(name, module, calls), ahead_of_time) == "right"
    return say("to_export, compiled by AOTInductor", "3 of 3 right", f"{right} right", right == 3) and passed


def ahead_of_time(gm: Any, example: Call) -> Callable[..., Any]:
    """The exported program, compiled ahead of time by inductor."""
    with tempfile.TemporaryDirectory() as folder:
        path = torch._inductor.aoti_compile_and_package(to_export(gm, *example), package_path=f"{folder}/model.pt2")
        return torch._inductor.aoti_load_package(path)  # type: ignore[no-any-return]


def judge_back() -> bool:
    """from_export(to_export(gm)), verified on all calls of what to_export takes."""

    def back(gm: Any, example: Call) -> Callable[..., Any]:
        return from_export(to_export(gm, *example))

    found = tally(control_flow(), back)
    taken = len(found["right"]) + len(found["fixed"]) + len(found["wrong"])
    value = f"{len(found['right'])} of {taken} right, {len(found['fixed'])} fixed, {len(found['wrong'])} wrong"
    return say("from_export(to_export(gm))", "all that is exported", value, taken > 0 and not found["wrong"])


def judge_fx() -> bool:
    """from_fx(to_fx(gm)): equal text on 60 models without branches, and the control-flow set by torch's operators."""
    equal, others, branching = 0, 0, 0
    wanted = 60 if JUDGE.exists() else 5
    for program in models():
        if equal == wanted:
            break
        with warnings.catch_warnings(), torch.no_grad():
            warnings.simplefilter("ignore")
            gm = trace(program.module, *program.calls[0], target="export")
            if gm.report.regions:  # on the mode, too, which torch.fx's graphs have decided
                branching += 1
                continue
            try:
                back = from_fx(to_fx(gm))
            except GraphwrightError as error:
                others += 1
                print(f"    {program.name}: {str(error).splitlines()[0]}"[:150], flush=True)
                continue
        is_equal = back.code == gm.code and str(back.graph) == str(gm.graph)
        equal, others = equal + is_equal, others + (not is_equal)
        if not is_equal:
            print(f"    {program.name}: another text", flush=True)
        gc.collect()
    value = f"{equal} equal, {others} not or refused; {branching} with branches passed over"
    passed = say("from_fx(to_fx(gm)): the same text", f"{wanted} models", value, equal == wanted)

    def operators(gm: Any, example: Call) -> Callable[..., Any]:
        return to_fx(gm, control_flow="hop")

    found = tally(control_flow(), operators)
    value = ", ".join(f"{len(names)} {word}" for word, names in found.items() if names)
    return say('to_fx(gm, control_flow="hop")', "none wrong", value, not found["wrong"]) and passed


def models() -> Iterator[Program]:
    """Models of libraries, small ones first."""
    for kind, limit in (("torchvision", 16), ("timm", 50), ("transformers", 73)):
        yield from zoo_programs(kind, limit)
    if not JUDGE.exists():
        for program in own_programs():
            yield program._replace(module=nn.Sequential(nn.Linear(3, 3), nn.ReLU(), nn.Linear(3, len(program.name))))


def judge_compile() -> bool:
    """torch.compile on 30 models at 3 sizes: no more compilations than backend="eager", and the same values."""
    judged, more, unlike = 0, list[str](), list[str]()
    for program in compiled_models():
        if judged == 30:
            break
        calls = program.calls[:3]
        ours: Callable[..., Any] = lambda counter: compile_backend(  # noqa: E731
            [MergeSubexpressions(), RemoveDeadValues()], then=counter
        )
        theirs, count = compiled_results(program.module, calls, lambda counter: counter)
        given, other_count = compiled_results(program.module, calls, ours)
        judged += 1
        more += [f"{program.name} ({other_count} and {count})"] if other_count > count else []
        unlike += [] if same(theirs, given) else [f"{program.name}: other values"]
        gc.collect()
    for name in (*more, *unlike):
        print(f"    {name}", flush=True)
    value = f"{judged - len(more)} of {judged}, {len(unlike)} with other values"
    passed = say("torch.compile: compilations as backend='eager'", "30 models at 3 sizes", value, not (more or unlike))
    right = 0
    for program in [*own_programs()][:4]:
        torch._dynamo.reset()
        compiled = torch.compile(copy.deepcopy(program.module), backend="graphwright")
        original = copy.deepcopy(program.module)
        with torch.no_grad():
            right += all(same(result_of(compiled, call), result_of(original, call)) for call in program.calls[:3])
    return (
        say('torch.compile(backend="graphwright"), by inductor', "4 of 4 right", f"{right} right", right == 4)
        and passed
    )


def compiled_models() -> Iterator[Program]:
    """Models with at least two sizes that torch.compile is given."""
    for program in (*zoo_programs("classic"), *own_programs()):
        if isinstance(program.module, nn.Module) and len(program.calls) > 1:
            yield program
    yield from zoo_programs("transformers", 20)


def compiled_results(module: nn.Module, calls: Sequence[Call], make: Callable[[Any], Any]) -> tuple[list[Any], int]:
    """What a compiled module gives, "error" where it raises, and how often the backend was called."""
    torch._dynamo.reset()
    counter = CompileCounter()
    compiled = torch.compile(copy.deepcopy(module), backend=make(counter))
    results: list[Any] = []
    with warnings.catch_warnings(), torch.no_grad():
        warnings.simplefilter("ignore")
        for call in calls:
            try:
                results.append(result_of(compiled, call))
            except Exception:
                results.append("error")
    return results, counter.frame_count


SECTIONS = {"export": judge_export, "back": judge_back, "fx": judge_fx, "compile": judge_compile}


def main(names: Sequence[str]) -> int:
    """Judge the named sections, or all; 1 where one misses."""
    os.environ.setdefault("HF_HUB_OFFLINE", "1")
    torch._logging.set_logs(dynamo=logging.ERROR, graph_breaks=False)
    if not JUDGE.exists():
        print(f"there is no {Path(JUDGE).parent}: without the models of the zoo")
    passed = True
    for name in names or SECTIONS:
        start = time.perf_counter()
        passed &= SECTIONS[name]()
        print(f"  {name}: {time.perf_counter() - start:.0f} s", flush=True)
    return 0 if passed else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
