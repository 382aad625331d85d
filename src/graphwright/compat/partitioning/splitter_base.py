"""Cut a module into parts that an accelerator runs and parts that it does not: the base of such splitters.

A splitter is told by an `OperatorSupportBase` which nodes the accelerator supports, finds the others that must stay
with them, and hands connected runs of either kind to `split_by_tags`.
"""

from __future__ import annotations

import copy
import os
from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import torch
from torch import nn

from graphwright.compat.partitioning.node_events import ALL_SUFFIX, NODES_SUFFIX, NodeEvent, NodeEventTracker
from graphwright.compat.partitioning.operator_support import OperatorSupportBase
from graphwright.compat.partitioning.split_utils import Subgraph, move_non_tensor_nodes_on_boundary, split_by_tags
from graphwright.compat.partitioning.tools_common import (
    CALLABLE_NODE_OPS,
    FxNetAccFusionsFinder,
    NodeList,
    NodeSet,
    Tensors,
    get_node_target,
    is_node_output_tensor,
)
from graphwright.compat.tools.graph_manipulation import get_size_of_node
from graphwright.ir import Node, nodes_in
from graphwright.passes import ShapeProp
from graphwright.runtime import GraphModule, graph_of

__all__ = [
    "ALL_SUFFIX",
    "NODES_SUFFIX",
    "FxNetAccNodesFinder",
    "FxNetSplitterInternalError",
    "NodeEvent",
    "NodeEventTracker",
    "SplitResult",
    "Subgraph",
    "generate_inputs_for_submodules",
]

DEFAULT_MIN_ACC_MODULE_SIZE = 1
DEFAULT_SKIP_FUSION = False
DEFAULT_ALLOW_NON_TENSOR = False

# The search for supported nodes can leave its log in files, see NodeEventTracker.
ENV_FX_NET_ACC_SPLITTER_TRACKER_MODE = "FX_NET_ACC_SPLITTER_TRACKER_MODE"
ENV_FX_NET_ACC_SPLITTER_TRACKER_DUMP_PATH = "FX_NET_ACC_SPLITTER_TRACKER_DUMP_PATH"
ENV_FX_NET_ACC_SPLITTER_TRACKER_TRACKED_NODES = "FX_NET_ACC_SPLITTER_TRACKER_TRACKED_NODES"
DUMP_PREFIX = os.environ.get(ENV_FX_NET_ACC_SPLITTER_TRACKER_DUMP_PATH, "_fx_net_tracker")
TRACKER_DUMP_PATH = DUMP_PREFIX
TRACKER_MODE = os.environ.get(ENV_FX_NET_ACC_SPLITTER_TRACKER_MODE, "0")


class FxNetSplitterInternalError(Exception):
    """Nodes could not be put into parts: their dependencies go round in circles, or there is nothing to run."""


class FxNetAccNodesFinder:
    """Finds the nodes that an accelerator runs: supported ones that exchange only tensors with the others.

    With `allow_non_tensor` numbers and containers may cross, too. The module must know its types: see `ShapeProp`.
    """

    def __init__(self, module: GraphModule, operator_support: OperatorSupportBase, allow_non_tensor: bool) -> None:
        self.module = module
        self.operator_support = operator_support
        self.allow_non_tensor = allow_non_tensor
        self.acc_nodes: NodeSet = set()
        tracked = os.environ.get(ENV_FX_NET_ACC_SPLITTER_TRACKER_TRACKED_NODES, "")
        self.tracker = NodeEventTracker(int(TRACKER_MODE), DUMP_PREFIX, tracked)

    def reduce_acc_nodes_non_tensor_input_helper(self, cpu_worklist: NodeList) -> None:
        """Give up whatever reads these nodes, and what reads that, as long as it is no tensor."""
        while cpu_worklist:
            node = cpu_worklist.pop(0)
            for user in node.users:
                if user in self.acc_nodes:
                    self.acc_nodes.remove(user)
                    self.tracker.add(user, "acc_del|user_of_new_cpu_node", node)
                    if not is_node_output_tensor(user):
                        cpu_worklist.append(user)

    def reduce_acc_nodes_non_tensor_input(self) -> None:
        """Give up nodes that read something other than a tensor from an unsupported one."""
        self.reduce_acc_nodes_non_tensor_input_helper(
            [
                node
                for node in graph_of(self.module).nodes
                if node.op in CALLABLE_NODE_OPS and node not in self.acc_nodes and not is_node_output_tensor(node)
            ]
        )

    def reduce_acc_nodes_non_tensor_output(self) -> None:
        """Give up nodes from which an unsupported one reads something other than a tensor."""
        while True:
            given_up: NodeList = []
            for node in graph_of(self.module).nodes:
                if node not in self.acc_nodes or is_node_output_tensor(node):
                    continue
                outside = next((user for user in node.users if user not in self.acc_nodes), None)
                if outside is not None:
                    given_up.append(node)
                    self.tracker.add(node, "acc_del|non_tensor_output_with_cpu_user", outside)
            if not given_up:
                return
            self.acc_nodes.difference_update(given_up)
            self.reduce_acc_nodes_non_tensor_input_helper(given_up)

    def __call__(self) -> NodeSet:
        submodules = dict(self.module.named_modules())
        self.acc_nodes = set()
        for node in graph_of(self.module).nodes:
            if node.op not in CALLABLE_NODE_OPS:
                self.tracker.add(node, "init_cpu|not_callable")
            elif self.operator_support.is_node_supported(submodules, node):
                self.tracker.add(node, "init_acc|callable_and_operator_supported")
                self.acc_nodes.add(node)
            else:
                self.tracker.add(node, "init_cpu|operator_support")
        if not self.allow_non_tensor:
            self.reduce_acc_nodes_non_tensor_input()
            self.reduce_acc_nodes_non_tensor_output()
        self.tracker.dump()
        return self.acc_nodes


class SplitResult(NamedTuple):
    """A split module, what each of its parts was called with, and how the names of the unsupported parts begin.

    >>> SplitResult(None, {}, "_run_on_cpu_").non_acc_submodule_prefix
    '_run_on_cpu_'
    """

    split_module: GraphModule
    submodule_inputs: dict[str, Any]
    non_acc_submodule_prefix: str


def generate_inputs_for_submodules(
    model: nn.Module, inputs: Sequence[Any], target_submodules: Iterable[str], deepcopy: bool = False
) -> dict[str, Any]:
    """Run a model and give the positional arguments of each submodule's last call, by its path.

    With `deepcopy` copies of them, for models that write to them later. Paths that lead nowhere are left out.

    >>> model = nn.Sequential(nn.ReLU(), nn.Identity())
    >>> generate_inputs_for_submodules(model, [-torch.ones(1)], ["1"])
    {'1': (tensor([0.]),)}
    """
    found: dict[str, Any] = {}
    wanted = set(target_submodules)

    def keep(name: str) -> Any:
        def hook(module: nn.Module, arguments: Any) -> None:
            found[name] = copy.deepcopy(arguments) if deepcopy else arguments

        return hook

    handles = [module.register_forward_pre_hook(keep(name)) for name, module in model.named_modules() if name in wanted]
    try:
        with torch.no_grad():
            model(*inputs)
    finally:
        for handle in handles:
            handle.remove()
    return found


class _SplitterSettingBase:
    """How to split.

    Parts for the accelerator of fewer nodes than `min_acc_module_size` are not made. `skip_fusion` lets nodes that
    exchange other things than tensors part, `allow_non_tensor` lets such things cross, and
    `move_non_tensor_nodes_on_boundary` moves their makers to those who use them.
    """

    def __init__(
        self,
        min_acc_module_size: int = DEFAULT_MIN_ACC_MODULE_SIZE,
        skip_fusion: bool = DEFAULT_SKIP_FUSION,
        allow_non_tensor: bool = DEFAULT_ALLOW_NON_TENSOR,
        max_acc_splits: int = -1,
        move_non_tensor_nodes_on_boundary: bool = False,
    ) -> None:
        self.min_acc_module_size = min_acc_module_size
        self.skip_fusion = skip_fusion
        self.allow_non_tensor = allow_non_tensor
        self.max_acc_splits = max_acc_splits
        self.move_non_tensor_nodes_on_boundary = move_non_tensor_nodes_on_boundary


class _SplitterBase:
    """Splits a module into parts `_run_on_acc_<i>` and `<non_acc_submodule_name><i>`; called, it gives the split one.

    Subclasses override `_lower_model_to_backend` and `_find_culprit` for `split_preview`. The module gets shapes and
    types by a run on `sample_input`, and tags on its nodes.
    """

    PCIe_BW = 100 * 2**30  # bytes per second

    def __init__(
        self,
        module: GraphModule,
        sample_input: Sequence[Any],
        operator_support: OperatorSupportBase,
        settings: _SplitterSettingBase,
        non_acc_submodule_name: str = "_run_on_cpu_",
        return_tuple: bool = False,
        nodes_finder: FxNetAccNodesFinder | None = None,
    ) -> None:
        if not isinstance(module, GraphModule):
            raise AssertionError(f"expected a GraphModule, got {type(module).__name__}")
        self.module = module
        ShapeProp(module).propagate(*sample_input)
        self.settings = settings
        self.operator_support = operator_support
        self.sample_input = sample_input
        if nodes_finder is None:
            nodes_finder = FxNetAccNodesFinder(module, operator_support, settings.allow_non_tensor)
        self.acc_nodes = nodes_finder()
        self.fusions: dict[Node, NodeSet] = {}
        if not settings.skip_fusion:
            self.fusions = FxNetAccFusionsFinder(module, self.acc_nodes)()
            self._merge_overlapping_fusions()
        self.deps = self.find_deps()
        self.update_deps_for_fusions()
        self.non_acc_submodule_name = non_acc_submodule_name
        self._node_submodule_map: dict[str, str] = {}
        self._return_tuple = return_tuple
        self.tags: list[str] = []

    # ---- for subclasses

    def _merge_overlapping_fusions(self) -> None:
        """Called when `fusions` has been found; a subclass may join groups here."""

    def _lower_model_to_backend(self, mod: GraphModule, inputs: Tensors) -> nn.Module:
        """Compile a part for the accelerator; here it stays as it is."""
        return mod

    def _find_culprit(self, mod: GraphModule, inputs: Tensors) -> str:
        """Say which node of a part could not be compiled."""
        return "Unable to find a culprit because _find_culprit() function is not implemented."

    def _draw_graph_based_on_node_support(self, mod: GraphModule, supported_nodes: NodeList) -> None:
        """Draw the module; called where a preview is asked to."""

    # ---- who depends on whom

    def get_node_submodule_map(self) -> dict[str, str]:
        """Give the part of each node, by names, once tags are given."""
        return self._node_submodule_map

    def find_deps(self) -> dict[Node, NodeSet]:
        """Find for each node the calls that it reads."""
        deps: dict[Node, NodeSet] = defaultdict(set)
        for node in graph_of(self.module).nodes:
            if node.op in CALLABLE_NODE_OPS:
                for used in node.all_input_nodes:
                    if used.op in CALLABLE_NODE_OPS:
                        deps[node].add(used)
        return deps

    def update_deps_for_fusions(self) -> None:
        """Let nodes that stay together depend on what any of them reads, and their readers on all of them."""
        for node, group in self.fusions.items():
            for member in group:
                self.deps[node].update(self.deps[member] - group)
                for user in member.users:
                    if user not in group:
                        self.deps[user].add(node)

    def find_reverse_deps(self, tag_id: int | None = None) -> dict[Node, NodeSet]:
        """Find for each node the calls that read it; with `tag_id` only those in parts of lower numbers."""
        readers: dict[Node, NodeSet] = defaultdict(set)
        for node in graph_of(self.module).nodes:
            if node.op in CALLABLE_NODE_OPS:
                for user in node.users:
                    if user.op in CALLABLE_NODE_OPS and (tag_id is None or _number(_tag(user)) < tag_id):
                        readers[node].add(user)
        return readers

    def update_reverse_deps_for_fusions(self, deps: dict[Node, NodeSet]) -> None:
        """Let what reads one of several nodes that stay together read all of them; changes `deps`."""
        for node, group in self.fusions.items():
            for member in group:
                deps[node].update(deps[member])
                for used in member.all_input_nodes:
                    if used not in group:
                        deps[used].add(node)
            deps[node] -= group

    def find_parent_nodes_of_subgraph(self, tag: str) -> NodeSet:
        """Find the calls that a part reads from other parts."""
        nodes = [node for node in graph_of(self.module).nodes if node.op in CALLABLE_NODE_OPS]
        return {
            used
            for node in nodes
            if _tag(node) == tag
            for used in node.all_input_nodes
            if used.op in CALLABLE_NODE_OPS and _tag(used) != tag
        }

    def extend_acc_subgraph(self, tag: str) -> None:
        """Take supported nodes before a part into it, where nothing else before it needs them."""
        readers = self.find_reverse_deps(_number(tag))
        self.update_reverse_deps_for_fusions(readers)
        candidates = dict.fromkeys(self.find_parent_nodes_of_subgraph(tag))
        taken: NodeSet = set()
        while True:
            node = next((node for node in candidates if node in self.acc_nodes and readers[node] <= taken), None)
            if node is None:
                return
            node.tag = tag  # type: ignore[attr-defined]
            del candidates[node]
            taken.add(node)
            for other in (*self.fusions.get(node, ()), *node.all_input_nodes):
                if other.op in CALLABLE_NODE_OPS and other not in taken:
                    candidates[other] = None

    # ---- parts

    def starter_nodes(self) -> tuple[NodeSet, NodeSet]:
        """Find the nodes that read inputs or attributes, or nothing: unsupported ones, and supported ones."""
        unsupported, supported = self._starters()
        return set(unsupported), set(supported)

    def _starters(self) -> tuple[dict[Node, None], dict[Node, None]]:
        unsupported: dict[Node, None] = {}
        supported: dict[Node, None] = {}
        for node in graph_of(self.module).nodes:
            begun: Iterable[Node] = ()
            if node.op in ("placeholder", "get_attr"):
                begun = node.users
            elif node.op in CALLABLE_NODE_OPS and not node.all_input_nodes:
                begun = (node,)
            for user in begun:
                (supported if user in self.acc_nodes else unsupported)[user] = None
        return unsupported, supported

    def put_nodes_into_subgraphs(self) -> list[Subgraph]:
        """Put the nodes into runs of one kind each, as long as can be, in an order in which they can be run.

        Raises FxNetSplitterInternalError where there are none, or none that can be next.
        """
        unsupported, supported = self._starters()
        is_acc = not any(not self.deps[node] for node in unsupported)
        done: NodeSet = set()
        subgraphs: list[Subgraph] = []
        nodes: NodeList = []
        while unsupported or supported:
            waiting = supported if is_acc else unsupported
            node = next((node for node in waiting if self.deps[node] <= done), None)
            if node is None:
                if not nodes:
                    raise FxNetSplitterInternalError("Subgraph can't be empty")
                subgraphs.append(Subgraph(is_acc, nodes))
                is_acc, nodes = not is_acc, []
                continue
            del waiting[node]
            done.add(node)
            nodes.append(node)
            for other in self.fusions.get(node, ()):
                if other not in done:
                    waiting[other] = None
            for user in node.users:
                if user.op in CALLABLE_NODE_OPS and user not in done:
                    (supported if user in self.acc_nodes else unsupported)[user] = None
        if nodes:
            subgraphs.append(Subgraph(is_acc, nodes))
        if not subgraphs:
            raise FxNetSplitterInternalError("Couldn't create subgraphs")
        return subgraphs

    def remove_small_acc_subgraphs(self, subgraphs: list[Subgraph]) -> list[Subgraph]:
        """Join parts for the accelerator that are too small with the unsupported ones around them."""
        least = self.settings.min_acc_module_size
        result: list[Subgraph] = []
        for subgraph in subgraphs:
            if subgraph.is_acc:
                if len(subgraph.nodes) >= least:
                    result.append(subgraph)
                    continue
                print(
                    f"Eliminating acc subgraph because it's smaller than the threshold: {len(subgraph.nodes)} < {least}"
                )
            if result and not result[-1].is_acc:
                result[-1].nodes.extend(subgraph.nodes)
            else:
                subgraph.is_acc = False
                result.append(subgraph)
        return result

    def tag(self, subgraphs: list[Subgraph]) -> None:
        """Name the parts by kind and number, and write the name on each of their nodes as `node.tag`."""
        self.tags = []
        for i, subgraph in enumerate(subgraphs):
            tag = f"_run_on_acc_{i}" if subgraph.is_acc else f"{self.non_acc_submodule_name}{i}"
            self.tags.append(tag)
            for node in subgraph.nodes:
                if hasattr(node, "tag"):
                    raise FxNetSplitterInternalError(f"Node {node} was already tagged")
                node.tag = tag  # type: ignore[attr-defined]
                self._node_submodule_map[node.name] = tag

    def split(self, remove_tag: bool = False) -> GraphModule:
        """Split the module by the tags on its nodes, and with `remove_tag` take these off."""
        split: GraphModule = split_by_tags(self.module, self.tags, return_tuple=self._return_tuple)
        if remove_tag:
            for node in graph_of(self.module).nodes:
                if hasattr(node, "tag"):
                    del node.tag
        return split

    def __call__(self) -> GraphModule:
        subgraphs = self.put_nodes_into_subgraphs()
        if self.settings.move_non_tensor_nodes_on_boundary:
            move_non_tensor_nodes_on_boundary(subgraphs)
        subgraphs = self.remove_small_acc_subgraphs(subgraphs)
        supported = sum(subgraph.is_acc for subgraph in subgraphs)
        print(f"Got {supported} acc subgraphs and {len(subgraphs) - supported} non-acc subgraphs")
        self.tag(subgraphs)
        return self.split()

    def generate_split_results(self) -> SplitResult:
        """Split the module and find what each part is called with."""
        split = self()
        inputs = generate_inputs_for_submodules(split, self.sample_input, [name for name, _ in split.named_children()])
        return SplitResult(split, inputs, self.non_acc_submodule_name)

    # ---- reports

    def node_support_preview(self, dump_graph: bool = False) -> str:
        """Print and return which kinds of nodes are supported, with the dtypes of their arguments."""
        submodules = dict(self.module.named_modules())
        supported: dict[str, dict[str, None]] = {}  # dtypes of arguments, by target
        unsupported: dict[str, dict[str, None]] = {}
        supported_nodes: NodeList = []
        for node in graph_of(self.module).nodes:
            if node.op in CALLABLE_NODE_OPS:
                is_supported = self.operator_support.is_node_supported(submodules, node)
                kinds = (supported if is_supported else unsupported).setdefault(get_node_target(submodules, node), {})
                kinds[_dtypes_of_arguments(node)] = None
                if is_supported:
                    supported_nodes.append(node)
        if dump_graph:
            self._draw_graph_based_on_node_support(self.module, supported_nodes)
        report = "\nSupported node types in the model:\n" + _listed(supported)
        report += "\nUnsupported node types in the model:\n" + _listed(unsupported)
        print(report)
        return report

    def split_preview(self, dump_graph: bool = False) -> str:
        """Split, lower each part for the accelerator and run it; print and return what happened."""
        subgraphs = self.put_nodes_into_subgraphs()
        report = f"Before removing small acc subgraphs, total {_counted(subgraphs)}"
        subgraphs = self.remove_small_acc_subgraphs(subgraphs)
        report += f"After removing small acc subgraphs, total {_counted(subgraphs)}"
        self.tag(subgraphs)
        split = self.split(remove_tag=True)
        split.eval()
        if dump_graph:
            self._draw_graph_based_on_node_support(split, [])
        slowest: float = self.PCIe_BW
        bottleneck = ""
        for tag, subgraph in zip(self.tags, subgraphs, strict=True):
            report += f"{tag}: {len(subgraph.nodes)} node(s)\n"
        for tag, subgraph in zip(self.tags, subgraphs, strict=True):
            if subgraph.is_acc:
                text, rate = self._preview_part(split, tag)
                report += text
                if rate < slowest:
                    slowest, bottleneck = rate, tag
        report += f"\nTheoretical max qps (bounds by PCIe bandwidth) for this model is {slowest},"
        report += f" bottleneck is submodule {bottleneck}."
        print(report)
        return report

    def _preview_part(self, split: GraphModule, tag: str) -> tuple[str, float]:
        """Report on one part; also how many times a second its inputs or outputs can be moved."""
        part: Any = getattr(split, tag)
        inputs = generate_inputs_for_submodules(split, self.sample_input, [tag])[tag]
        ShapeProp(part).propagate(*inputs)
        report = f"\nProcessing acc submodule {tag}\nChecking inputs...\n"
        size_in = size_out = 0
        for node in graph_of(part).nodes:
            if node.op == "placeholder":
                if is_node_output_tensor(node):
                    size_in += get_size_of_node(part, node)[0]
                else:
                    report += f"Input {node.name} is not a tensor, this might cause problems during lowering!\n"
        report += "Checking outputs...\n"
        for node in dict.fromkeys(nodes_in(graph_of(part).output_node().args)):
            if is_node_output_tensor(node):
                size_out += get_size_of_node(part, node)[0]
            else:
                report += f"Output {node.name} is not a tensor, this might cause problems during lowering!\n"
        rate = self.PCIe_BW / max(size_in, size_out, 1)
        report += f"Total input size in bytes is {size_in}, total output size in bytes is {size_out},"
        report += f" theoretical max qps (bounds by PCIe bandwidth) for this submodule is {rate}.\n"
        try:
            self._lower_model_to_backend(part, inputs)(*inputs)
        except RuntimeError:
            return f"{report}Run into an error during lowering!\n{self._find_culprit(part, inputs)}", rate
        return f"{report}Lowering and running succeed!\n", rate


def _tag(node: Node) -> str:
    return node.tag  # type: ignore[attr-defined, no-any-return]


def _number(tag: str) -> int:
    return int(tag.rpartition("_")[2])


def _counted(subgraphs: list[Subgraph]) -> str:
    supported = sum(subgraph.is_acc for subgraph in subgraphs)
    return (
        f"{len(subgraphs)} subgraphs are created: {supported} acc subgraphs and {len(subgraphs) - supported} cpu"
        " subgraphs.\n"
    )


def _listed(kinds: dict[str, dict[str, None]]) -> str:
    return "".join(f"{target}: {dtypes}\n" for target, found in kinds.items() for dtypes in found)


def _dtypes_of_arguments(node: Node) -> str:
    """The dtypes of the tensors among the arguments, positional and keyword ones."""

    def described(arg: Any) -> bool:
        return isinstance(arg, Node) and hasattr(arg.meta.get("tensor_meta"), "dtype")

    positional = tuple([arg.meta["tensor_meta"].dtype for arg in node.args if described(arg)])
    named = {name: arg.meta["tensor_meta"].dtype for name, arg in node.kwargs.items() if described(arg)}
    return f"({positional}, {named})"
