"""Symbolic tracing: running a program on proxies, without example values.

`Tracer` records modules: parameters become get_attr nodes, calls of leaf modules become call_module nodes, other
modules are traced through. What happens to proxies is recorded as recording.py says.
"""

from __future__ import annotations

import builtins
import copy
import functools
import inspect
import math
import sys
import threading
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Mapping
from types import ModuleType
from typing import Any, ClassVar, Literal, NamedTuple

import torch
from torch import nn
from torch.utils import _pytree as pytree

from graphwright.capture.calls.modes import INFERENCE
from graphwright.capture.flow.forked_runs import all_paths
from graphwright.capture.flow.shared_ends import share_ends
from graphwright.capture.ladder.refuse import DataQuestion
from graphwright.capture.outside.library_calls import watch_libraries
from graphwright.capture.outside.made_tensors import MadeMeanwhile, Owner
from graphwright.capture.outside.overheard import aliases, stand_ins
from graphwright.capture.outside.process_state import watch_setters
from graphwright.capture.outside.random_state import watch_random_state
from graphwright.capture.outside.world import watch_world
from graphwright.capture.proxies.proxy import ParameterProxy, Proxy
from graphwright.capture.proxies.proxyable import is_proxyable
from graphwright.capture.proxies.recording import TracerBase, is_overridden, trace_error_and
from graphwright.capture.proxies.training_flag import TrainingFlag
from graphwright.capture.python.entering import convert_methods
from graphwright.capture.python.higher_order import watch_higher_order
from graphwright.capture.state.interception import StandIns
from graphwright.capture.state.plan import Plan, Restart
from graphwright.capture.state.protocol import SymbolicCapture
from graphwright.capture.state.tidy import erase_unused
from graphwright.capture.symbolic.ambient_mode import AmbientMode
from graphwright.capture.symbolic.attributes import Watched
from graphwright.capture.symbolic.failures import as_trace_error
from graphwright.capture.symbolic.identities import asking_for_identity
from graphwright.capture.symbolic.root_inputs import make_inputs, not_a_function, placeholder_for
from graphwright.capture.symbolic.symbolic_branches import SymbolicRecorder
from graphwright.capture.symbolic.wrap import recording_wrapped
from graphwright.errors import CaptureError, TraceError
from graphwright.garbage import rare_collections
from graphwright.ir import Argument, Graph, Node
from graphwright.ops import is_library_layer, module_called
from graphwright.runtime import GraphModule, Shells, graph_of, keep_facts
from graphwright.source import CallSite, Scope, annotations_of, is_returned, user_frame

_NO_TENSORS = frozenset({bool, int, float, str, type(None), tuple, list, dict, OrderedDict})
_CALLING_HOOKS = ("call_module", "path_of_module")
_READING_HOOKS = ("getattr", "_module_getattr")
_thread = threading.local()


def is_fx_tracing() -> bool:
    """Tell whether this thread is inside a symbolic trace."""
    return getattr(_thread, "depth", 0) > 0


def is_fx_symbolic_tracing() -> bool:
    """Tell whether this thread is inside a symbolic trace, and not inside torch.compile or torch.export."""
    return is_fx_tracing() and not torch.compiler.is_compiling()


class _TracingFlag:
    """True in a thread that is inside a symbolic trace: torch.fx keeps a bool of this name."""

    def __bool__(self) -> bool:
        return is_fx_tracing()


tracing_flag = _TracingFlag()


class Tracer(TracerBase):
    """Captures modules and functions symbolically. One tracer captures one program at a time.

    `autowrap_modules`: Python modules whose functions are recorded when a proxy is passed to them, and
    `autowrap_functions` single ones. With `param_shapes_constant`, the shapes of parameters are numbers.
    `control_flow` says what becomes of a branch on a value of the run: "error" raises TraceError; "stage" puts the
    branch into the graph where that is possible, and raises TraceError otherwise. A tracer with a `to_bool` of its own
    decides there.

    >>> class Twice(nn.Module):
    ...     def forward(self, x):
    ...         return torch.relu(x) + x
    >>> print(Tracer().trace(Twice()))
    graph():
        %x : [num_users=2] = placeholder[target=x]
        %relu : [num_users=1] = call_function[target=torch.relu](args = (%x,), kwargs = {})
        %add : [num_users=1] = call_function[target=operator.add](args = (%relu, %x), kwargs = {})
        return add
    """

    _is_plain = True
    control_flow: Literal["stage", "error"] = "stage"
    root_module_name = ""
    _calls_directly = True
    _converts = False
    _watched_tables: ClassVar[tuple[str, ...]] = ("_parameters",)

    def __init__(
        self,
        autowrap_modules: tuple[ModuleType, ...] = (math,),
        autowrap_functions: tuple[Callable[..., Any], ...] = (),
        param_shapes_constant: bool = False,
    ) -> None:
        super().__init__()
        self._autowrap_search: list[ModuleType] = list(autowrap_modules)
        self._autowrap_functions = tuple(autowrap_functions)
        self.param_shapes_constant = param_shapes_constant
        self.root: nn.Module = nn.Module()
        self.num_calls: dict[str, int] = {}
        self._forget()

    def _forget(self) -> None:
        """Drop what belongs to one capture."""
        self.traced_module: nn.Module | None = None  # what stands for the root
        self._shells: Shells | None = None
        self._parameter_paths: dict[int, str] | None = None  # id -> path, made at first need
        self._tensor_paths: dict[int, str] | None = None  # the same for buffers and plain attributes
        self._root_signature: tuple[Any, inspect.Signature] | None = None
        self.parameter_proxy_cache: dict[str, Proxy] = {}
        self._autocast_regions: list[tuple[Any, Node]] = []  # that are entered: the context of each, its node
        self._grad_regions: list[tuple[bool, Node]] = []  # that are entered: the mode before each, its node
        self._owners: dict[str, Owner] = {}  # what constants live on, by their names
        self._stale: dict[int, Any] = {}  # tensors to which the graph writes, which are not what the program reads

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        cls._calls_directly = cls._is_direct and not any(is_overridden(cls, hook) for hook in _CALLING_HOOKS)
        cls._converts = is_overridden(cls, "_converted")
        if any(is_overridden(cls, hook) for hook in _READING_HOOKS):
            cls._watched_tables = ("_parameters", "_buffers", "_modules")

    # ---- decisions to override

    def is_leaf_module(self, m: nn.Module, module_qualified_name: str) -> bool:
        """Tell whether calls of a module are recorded as one node.

        Default: torch.nn's own, but not Sequential, and modules that call one function of a library: einops' layers.
        """
        is_torchs = m.__module__.startswith(("torch.nn", "torch.ao.nn")) and not isinstance(m, nn.Sequential)
        return is_torchs or is_library_layer(type(m))

    def call_module(
        self, m: nn.Module, forward: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Any:
        """Record the call of a leaf module, or run `forward` to trace through any other."""
        path = self.path_of_module(m)
        if self.is_leaf_module(m, path):
            return self.create_proxy("call_module", path, args, kwargs)
        return forward(*args, **kwargs)

    def path_of_module(self, mod: nn.Module) -> str:
        """Return the dotted path of a module. Raises NameError for one that is not below the captured root."""
        if self._shells is not None:
            path = self._shells.path(mod)
        else:
            path = next((name for name, module in self.root.named_modules() if module is mod), None)
        if path is None:
            raise NameError(f"module is not installed as a submodule: a {type(mod).__name__} outside the traced root")
        return path

    def getattr(self, attr: str, attr_val: Any, parameter_proxy_cache: dict[str, Any]) -> Any:
        """Answer the read of an attribute of a module during capture: a parameter's is recorded.

        A buffer's is where `proxy_buffer_attributes`. Called for parameters; where it is overridden, for buffers and
        submodules too.
        """
        return self._module_getattr(attr, attr_val, parameter_proxy_cache)

    def _module_getattr(self, attr: str, attr_val: Any, parameter_proxy_cache: dict[str, Any]) -> Any:
        is_parameter = isinstance(attr_val, nn.Parameter)
        if not is_parameter and not (self.proxy_buffer_attributes and isinstance(attr_val, torch.Tensor)):
            return attr_val
        path = self._path_of_tensor(attr_val)
        if path is None:
            return attr_val
        if path not in parameter_proxy_cache:
            options: dict[str, Any] = {}  # overriding methods may not know of a factory that nobody asked for
            if self.param_shapes_constant and is_parameter:
                options["proxy_factory_fn"] = lambda node: ParameterProxy(self, node, path, attr_val)
            parameter_proxy_cache[path] = self.create_proxy("get_attr", path, (), {}, **options)
        return parameter_proxy_cache[path]

    def get_fresh_qualname(self, prefix: str) -> str:
        """Return the first of `prefix0`, `prefix1`, ... that neither the root nor the graph's constants have."""
        number = 0
        while f"{prefix}{number}" in self._constants or hasattr(self.root, f"{prefix}{number}"):
            number += 1
        return f"{prefix}{number}"

    def create_args_for_root(
        self,
        root_fn: Callable[..., Any],
        is_module: bool,
        concrete_args: Mapping[str, Any] | tuple[Any, ...] | None = None,
    ) -> tuple[Callable[..., Any], list[Any]]:
        """Make the placeholders of a program. Returns a function, and the arguments to call it with by position.

        `root_fn` of a module takes the module first, and so do the returned arguments. `concrete_args` is a dict by
        parameter, or a tuple of a value for each.
        """
        return make_inputs(self, root_fn, is_module, concrete_args)

    def _proxy_placeholder(
        self,
        name: str,
        concrete_args: Mapping[str, Any] | None,
        sig: inspect.Signature | None,
        fn_for_analysis: Callable[..., Any],
    ) -> Any:
        return placeholder_for(self, name, concrete_args, sig, fn_for_analysis)

    # ---- what is known during a capture

    @property
    def module_stack(self) -> OrderedDict[str, tuple[str, Any]]:
        """The module calls that are running, outermost first: `path` or `path@n` -> (path, class)."""
        return self.scope.module_stack()

    @property
    def submodule_paths(self) -> dict[nn.Module, str] | None:
        """The path of every module of the program that is being captured, None outside of a capture."""
        shells = self._shells
        if shells is None:
            return None
        return {module: path for *pair, path in shells.all() for module in pair}

    @property
    def node_name_to_scope(self) -> dict[str, tuple[str, Any]]:
        """The path and class of the module in which each node of the last capture was recorded."""
        scopes: dict[str, tuple[str, Any]] = {}
        for node in self.graph.nodes if hasattr(self, "graph") else ():
            site = node._origin
            inside = isinstance(site, CallSite) and site.scope.outer is not None
            scopes[node.name] = (site.scope.path, site.scope.kind) if inside else ("", None)
        return scopes

    @property
    def tensor_attrs(self) -> dict[Any, str]:
        """The path of every tensor, and object of TorchScript, that a module of the root has as a plain attribute."""
        return {value: path for path, value in self._held_objects() if _has_hash(value)}

    def _held_objects(self) -> Iterator[tuple[str, Any]]:
        for path, module in self.root.named_modules():
            for name, value in vars(vars(module).get("_actual_script_module", module)).items():
                if isinstance(value, (torch.Tensor, torch.ScriptObject, pytree.TreeSpec)):
                    yield f"{path}.{name}" if path else name, value

    # ---- capture

    def trace(
        self,
        root: nn.Module | Callable[..., Any],
        concrete_args: Mapping[str, Any] | tuple[Any, ...] | None = None,
    ) -> Graph:
        """Run a module or function on proxies and return the graph of what it did.

        `concrete_args` gives values of parameters by name; the program is specialized to them, and checks them when
        it runs. Raises TraceError where the program asks for a value that only a run has. The module is not
        changed, whatever happens.
        """
        if self.control_flow not in ("stage", "error"):
            raise ValueError(f"control_flow is 'stage' or 'error', not {self.control_flow!r}")
        if self.control_flow == "error" or is_overridden(type(self), "to_bool"):
            return self._run(root, concrete_args)
        plan = Plan()

        def run(answers: tuple[bool, ...]) -> SymbolicCapture:
            plan.start(answers)
            self._run(root, concrete_args, plan)
            recorder = self._recorder
            assert recorder is not None
            if plan.paths > plan.max_paths:
                raise recorder.questions.forking.too_many_paths()
            return recorder

        while True:
            try:
                plan.paths = 0
                with rare_collections():
                    self.graph = all_paths(run).root.graph
            except Restart as restart:
                plan.log.note(restart.why, restart.at)
                continue
            except DataQuestion as question:
                raise TraceError(question.error.message, at=question.error.at, fix=question.error.fix) from None
            except CaptureError as error:
                if isinstance(error, TraceError):
                    raise
                raise TraceError(error.message, at=error.at, fix=error.fix) from None  # of several runs together
            finally:
                self._recorder = None
            if self.graph.has_bodies:
                erase_unused(self.graph)
                share_ends(self.graph)
                erase_unused(self.graph)
                output = self.graph.output_node()
                output.origin = output.prev.origin if is_returned(output.prev) else None
            plan.log.passes = plan.passes
            keep_facts(self.graph, plan.log.facts("traced symbolically", plan.paths, None, ""))
            return self.graph

    def _run(
        self,
        root: nn.Module | Callable[..., Any],
        concrete_args: Mapping[str, Any] | tuple[Any, ...] | None,
        plan: Plan | None = None,
    ) -> Graph:
        """Run the program on proxies once."""
        self._forget()
        self.graph = Graph(tracer_cls=type(self))
        recorder = self._recorder = None if plan is None else SymbolicRecorder(self, plan)
        program = self._program_of(root, plan)
        self.scope = Scope("", None)
        self.num_calls = {}
        self._caller = user_frame(sys._getframe(1))
        self.is_tracing = True
        _thread.depth = getattr(_thread, "depth", 0) + 1
        try:
            run, args = self.create_args_for_root(program.function, program.is_module, concrete_args)
            is_whole = program.module is not None and program.module is root  # rather than one of its methods
            if is_whole and (root._forward_hooks or root._forward_pre_hooks):  # type: ignore[union-attr]
                run, args = _with_hooks(run, args, self.traced_module)
            parts = [part for part, *_ in self._shells.all()] if self._shells is not None and is_whole else []
            call = functools.partial(run, *args) if recorder is None else functools.partial(recorder.run, run, args)
            given = self._given_by(program, call, parts)
            returns = annotations_of(program.function).get("return")
            self.create_node("output", "output", (given,), {}, type_expr=returns)
            self._settle_made()
        finally:
            while plan is not None and plan.undo:
                plan.undo.pop()()
            _thread.depth -= 1
            self.is_tracing = False
            self._caller = None
            self._forget()
        return self.graph

    def _settle_made(self) -> None:
        """Have each call have its own of the tensors that the program has made meanwhile, where it writes to them."""
        if self._recorder is not None:
            self._recorder.last_frame = None  # which has all that the program had
        try:
            called = functools.partial(module_called, owner=self.root)
            MadeMeanwhile(self.graph, self._owners, called).settle()
        except CaptureError as error:
            fix = f"{error.fix}; or trace with example inputs: trace(model, args)"
            raise TraceError(error.message, at=error.at, fix=fix) from None

    def _program_of(self, root: nn.Module | Callable[..., Any], plan: Plan | None) -> _Program:
        """What there is to run: of a module, on shells that stand for it and for those below it."""
        module, name, bind = _module_of(root, self.traced_func_name)
        self.root_module_name = "" if module is None else type(module).__name__
        if module is None:
            if not callable(root) or (isinstance(root, type) and nn.Module in root.__mro__):
                raise not_a_function(root)
            self.root = nn.Module()
            if plan is not None and plan.passes == 1:
                plan.converted |= asking_for_identity([root], None)
            return _Program(None, self._converted(root), [root], False)
        self.root = module
        if not hasattr(module, name):
            raise AssertionError(f"traced_func_name={name} doesn't exist in {type(module).__name__}")
        if self.proxy_buffer_attributes and "_buffers" not in self._watched_tables:
            self._watched_tables = (*self._watched_tables, "_buffers")  # type: ignore[misc]
        self._shells = Shells(module, self._call)
        self._shells.each(self._prepare)
        self.traced_module = self._shells.root
        if plan is not None and plan.passes == 1:
            plan.converted |= asking_for_identity(_forwards(self._shells), root)
        if plan is not None and plan.converted:
            convert_methods(self._shells, plan.converted)
        function = builtins.getattr(module, name)
        is_module = bind is None and inspect.ismethod(function) and function.__self__ is module
        entered = [builtins.getattr(function, "__func__", function), *_forwards(self._shells)]
        function = entered[0] if is_module else builtins.getattr(self.traced_module, name)
        return _Program(module, self._converted(function if bind is None else bind(function)), entered, is_module)

    def _given_by(self, program: _Program, run: Callable[[], Any], parts: Iterable[nn.Module]) -> Any:
        """Run a program on proxies, with all that has to be heard of what it calls; what its result is in the graph."""
        leaves = [*self._autowrap_functions, *_wrapped_in(parts)]
        wrapped = recording_wrapped(program.entered, self._autowrap_search, leaves)
        watch_world()
        watch_libraries()
        watch_random_state()
        watch_setters()
        watch_higher_order()
        named = [entry for names in _namespaces(program.entered) for entry in aliases(names)]
        standing: tuple[StandIns, ...] = StandIns([*stand_ins(), *named]), StandIns(INFERENCE)
        try:
            for each in standing:
                each.enter()
            with wrapped, AmbientMode(self):
                try:
                    result = run()
                except Exception as error:
                    ours = as_trace_error(error, program.entered[0])
                    if ours is error:
                        raise
                    raise ours from error
            try:
                return self.create_arg(result)
            except RecursionError as error:
                raise as_trace_error(error, program.entered[0]) from error
        finally:
            for each in standing:
                each.leave()

    def _call(self, module: nn.Module, shell: nn.Module, /, *args: Any, **kwargs: Any) -> Any:
        """What runs instead of a module's `__call__` during capture."""
        shells = self._shells
        if shells is None:  # a shell that outlived its capture: an ordinary module
            return nn.Module._call_impl(shell, *args, **kwargs)
        path = shells.path(module) or ""
        outer = self.scope
        call = self.num_calls.get(path, 0)
        self.num_calls[path] = call + 1
        self.scope = Scope(path, type(module), call, outer)
        for state in self._recorder.states if self._recorder is not None else ():
            state.watch(shell)
        try:
            # Hooks on the backward of a module join autograd around its forward, which only a run has.
            if path and (module._backward_hooks or module._backward_pre_hooks):
                return self.create_proxy("call_module", path, args, kwargs)
            if not self._calls_directly:
                return self.call_module(module, _forward_of(shell), args, kwargs)
            if self.is_leaf_module(module, path):  # `call_module` in this frame, where nobody overrides it
                return self._direct("call_module", path, args, kwargs, None)
            return nn.Module._call_impl(shell, *args, **kwargs)
        finally:
            self.scope = outer

    def _converted(self, function: Callable[..., Any]) -> Any:
        """Return what runs instead of a function of the program: the root's own, and the `forward` of its modules."""
        return function if self._recorder is None else self._recorder.questions.staging.converted(function)

    def _prepare(self, module: nn.Module, shell: nn.Module, path: str) -> None:
        """Make parameter reads and the training flag of a shell part of the program."""
        prefix = f"{path}." if path else ""
        state = shell.__dict__
        for table in self._watched_tables:
            if state[table]:
                state[table] = Watched(self, state[table])
        if self._converts and not self.is_leaf_module(module, path):
            state["forward"] = self._converted(type(shell).forward).__get__(shell)
        state["training"] = TrainingFlag(self, prefix, module.training)

    # ---- arguments

    def create_arg(self, a: Any) -> Argument:
        """As `TracerBase.create_arg`; parameters, buffers, other tensors and modules are read by get_attr."""
        if isinstance(a, torch.Tensor):
            path = self._path_of_tensor(a)
            if path is None:
                if isinstance(a, nn.Parameter):
                    raise trace_error_and(NameError)(
                        f"parameter is not a member of this module: shape {tuple(a.shape)}; if a layer holds it, that "
                        "module is not installed as a submodule",
                        at=self._here(),
                        fix="make it in __init__, or capture with graphwright.trace(model, args)",
                    )
                path = self._constant(a, "_tensor_constant")
                self._owners.setdefault(path, Owner(tensor=a))
            return self.create_node("get_attr", path, (), {})
        if isinstance(a, nn.Module):
            return self.create_node("get_attr", self.path_of_module(a), (), {})
        if isinstance(a, (torch.ScriptObject, pytree.TreeSpec)):
            prefix = "_torchbind_obj" if isinstance(a, torch.ScriptObject) else "_tree_spec_constant"
            held = [path for path, value in self._held_objects() if type(value) is type(a) and _is_same(value, a)]
            path = held[-1] if held else None
            if path is None and isinstance(a, torch._C.ScriptModule):
                raise NameError("module is not installed as a submodule: a TorchScript module outside the traced root")
            return self.create_node("get_attr", path or self._constant(a, prefix), (), {})
        if is_proxyable(a):
            return self.create_node("get_attr", self._constant(a, f"_{type(a).__name__}_constant_"), (), {})
        return super().create_arg(a)

    def _path_of_tensor(self, tensor: torch.Tensor) -> str | None:
        """The dotted path under which the root holds a tensor: as parameter, else as buffer or plain attribute."""
        if self._parameter_paths is None:
            self._parameter_paths = self._tensors_in("_parameters")
        path = self._parameter_paths.get(id(tensor))
        if path is None and not isinstance(tensor, nn.Parameter):
            if self._tensor_paths is None:
                self._tensor_paths = {**self._tensors_in("__dict__"), **self._tensors_in("_buffers")}
            path = self._tensor_paths.get(id(tensor))
        return path

    def _tensors_in(self, table: str) -> dict[int, str]:
        """Map id -> path for the tensors in one table of every module below the root, the first path of each."""
        paths: dict[int, str] = {}
        for module, _, path in self._shells.all() if self._shells is not None else ():
            held = module.__dict__ if table == "__dict__" else module.__dict__[table]
            for name, value in held.items():
                if type(value) not in _NO_TENSORS and isinstance(value, torch.Tensor) and id(value) not in paths:
                    paths[id(value)] = f"{path}.{name}" if path else name
        return paths

    def _constant(self, value: Any, prefix: str) -> str:
        """Keep a value that no module has, and return the name it is read by."""
        constants = self._constants
        for name, known in constants.items():
            if known is value:
                return name
        name = self.get_fresh_qualname(prefix)
        constants[name] = value
        return name

    @property
    def _constants(self) -> dict[str, Any]:
        """The constants of the program; those of a branch are the program's."""
        return (self.graph if self._recorder is None else self._recorder.root.graph).constants

    def __deepcopy__(self, memo: dict[int, Any]) -> Tracer:
        other = object.__new__(type(self))
        memo[id(self)] = other
        for name, value in vars(self).items():
            other.__dict__[name] = list(value) if name == "_autowrap_search" else copy.deepcopy(value, memo)
        return other


class _Program(NamedTuple):
    """What is traced."""

    module: nn.Module | None  # whose program it is
    function: Callable[..., Any]
    entered: list[Any]  # functions that are not nodes: it, and the forwards of the modules
    is_module: bool  # whether the first argument is the module


def _module_of(
    root: nn.Module | Callable[..., Any], name: str
) -> tuple[nn.Module | None, str, Callable[[Any], Any] | None]:
    """The module of a program that is one, its method or a partial of these; the method; and what binds arguments."""
    if isinstance(root, nn.Module):
        return root, name, None
    if isinstance(root, functools.partial):
        module, name, bind = _module_of(root.func, name)
        inner = bind or (lambda function: function)
        return module, name, lambda function: functools.partial(inner(function), *root.args, **root.keywords)
    if inspect.ismethod(root) and isinstance(root.__self__, nn.Module):
        return root.__self__, root.__name__, None
    return None, name, None


def _forwards(shells: Shells) -> Iterator[Any]:
    """The functions that the modules of a program run, torch.nn's own left out."""
    kinds = {type(module): module for module, *_ in shells.all()}
    for kind, module in kinds.items():
        if not kind.__module__.startswith("torch.nn"):
            yield builtins.getattr(builtins.getattr(module, "forward", None), "__func__", None)


def _namespaces(programs: Iterable[Any]) -> list[dict[str, Any]]:
    """The global names of some functions, each namespace once."""
    return list({id(each.__globals__): each.__globals__ for each in programs if inspect.isfunction(each)}.values())


def _forward_of(shell: nn.Module) -> Callable[..., Any]:
    def forward(*args: Any, **kwargs: Any) -> Any:
        return nn.Module._call_impl(shell, *args, **kwargs)

    return forward


def _wrapped_in(parts: Iterable[nn.Module]) -> list[Callable[..., Any]]:
    """The functions that captured modules among these call as wrapped ones: traced again, they stay so."""
    captured = [part for part in parts if isinstance(part, GraphModule)]
    nodes = [node for part in captured for node in graph_of(part).nodes if node.op == "call_function"]
    return [node.target for node in nodes if node.meta.get("is_wrapped")]


def _with_hooks(
    function: Callable[..., Any], args: list[Any], module: nn.Module | None
) -> tuple[Callable[..., Any], list[Any]]:
    """The same program with the root's forward hooks."""
    assert module is not None
    inner = functools.partial(function, module) if args and args[0] is module else function
    inputs = args[1:] if args and args[0] is module else args
    module.__dict__["forward"] = inner
    return functools.partial(nn.Module._call_impl, module), inputs


def _is_same(value: Any, other: Any) -> bool:
    """Tell whether two values are one or equal; classes of TorchScript need not say when two of theirs are."""
    try:
        return value is other or bool(value == other)
    except NotImplementedError:
        return False


def _has_hash(value: Any) -> bool:
    """Tell whether a value may be a key: in an older torch a TreeSpec of dicts may not."""
    try:
        hash(value)
    except TypeError:
        return False
    return True
