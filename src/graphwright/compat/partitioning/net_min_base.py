"""Find the nodes at which two ways to run a module part: the base of minimizers for accelerators.

A subclass says how to run a part in the trusted way (`run_a`) and in the other one (`run_b`). Parts of the module
are cut out, run both ways on the same inputs, and compared, until the part that differs is small.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields
from typing import Any

from graphwright.compat.partitioning.split_utils import split_by_tags
from graphwright.compat.partitioning.tools_common import (
    CALLABLE_NODE_OPS,
    FxNetAccFusionsFinder,
    Names,
    NodeList,
    NodeSet,
    TensorOrTensors,
    Tensors,
)
from graphwright.errors import PassError
from graphwright.ir import Node, map_arg, nodes_in
from graphwright.passes import ShapeProp
from graphwright.runtime import GraphModule, graph_of

__all__ = [
    "FxNetMinimizerBadModuleError",
    "FxNetMinimizerResultMismatchError",
    "FxNetMinimizerRunFuncError",
]

_SPLIT_ON = "Proceed to split and lower the halves of the current sub-module individually."


class FxNetMinimizerBadModuleError(Exception):
    """The part to run could not be cut out."""


class FxNetMinimizerRunFuncError(Exception):
    """A part raised an error in `run_a` or `run_b`."""


class FxNetMinimizerResultMismatchError(Exception):
    """The two ways to run a part gave different results."""


@dataclass
class _MinimizerSettingBase:
    """How to search.

    `traverse_method` is "sequential", node by node; "binary"; "accumulate", the first nodes, then one more;
    "block", the last and the first node of a block that differs; "defined", one run of all; or "skip", the runs between
    given nodes. `find_all` goes on after a find. With `accumulate_error` the second way gets its own earlier results
    as inputs. Compared is the last node of a part, with `all_outputs` all that others read, with
    `return_intermediate` every node in `run_nodes`.
    """

    accumulate_error: bool = False
    traverse_method: str = "sequential"
    find_all: bool = False
    return_intermediate: bool = False
    all_outputs: bool = False

    def __str__(self) -> str:
        lines = [f"\t{each.name}: {getattr(self, each.name)}\n" for each in fields(self)]
        return "FX Minimizer Settings:\n" + "".join(lines)


class _MinimizerBase:
    """Searches a module for the nodes at which `run_a` and `run_b` differ; `minimize` gives them.

    `compare_fn(a, b, names)` gives a number to report and whether the results agree. `module_exporter` gets the
    inputs, the module and a name for each way of a part that differs. `exclusion_fn` may take nodes out of the list
    that is about to be run.
    """

    def __init__(
        self,
        module: GraphModule,
        sample_input: Tensors,
        compare_fn: Callable[[TensorOrTensors, TensorOrTensors, Names], tuple[float, bool]],
        settings: _MinimizerSettingBase,
        module_exporter: Callable[[Tensors, GraphModule, str], None] | None = None,
        exclusion_fn: Callable[[NodeList, int, int], None] | None = None,
    ) -> None:
        if not isinstance(module, GraphModule):
            raise AssertionError(f"Expected GraphModule, got {type(module)}")
        self.module = module
        self.sample_input = sample_input
        self.compare_fn = compare_fn
        self.module_exporter = module_exporter
        self.settings = settings
        self.exclusion_fn = exclusion_fn
        self.a_outputs: dict[str, Any] = {}
        self.b_outputs: dict[str, Any] = {}
        self.results: dict[Any, Any] = {}  # what `compare_fn` said, by the names of the results
        self.reports: list[list[str]] = []
        self.iteration = 0
        self.run_shape_prop()
        callable_nodes = {node for node in graph_of(module).nodes if node.op in CALLABLE_NODE_OPS}
        self.fusions = FxNetAccFusionsFinder(module, callable_nodes)()
        inputs = graph_of(module).placeholders()
        for node, value in zip(inputs, self.sample_input, strict=True):
            self.a_outputs[node.name] = self.b_outputs[node.name] = value

    # ---- for subclasses

    def run_shape_prop(self) -> None:
        """Find the types and shapes of all values."""
        ShapeProp(self.module).propagate(*self.sample_input)

    def run_a(self, mod: GraphModule, inputs: Tensors, report_idx: int = -1) -> TensorOrTensors:
        """Run a part in the trusted way; to be overridden."""
        raise RuntimeError("run_a() is not implemented.")

    def run_b(self, mod: GraphModule, inputs: Tensors, report_idx: int = -1) -> TensorOrTensors:
        """Run a part in the way that is to be checked; to be overridden."""
        raise RuntimeError("run_b() is not implemented.")

    # ---- one part

    def _store_outputs(self, a_result: Any, b_result: Any, submodule: GraphModule) -> None:
        """Keep what a part gave, for parts that read it."""
        returned = graph_of(submodule).output_node().args[0]
        if isinstance(returned, Node):
            self.a_outputs[returned.name], self.b_outputs[returned.name] = a_result, b_result
            return
        for i, node in enumerate(nodes_in(returned)):
            self.a_outputs[node.name], self.b_outputs[node.name] = a_result[i], b_result[i]

    def _get_submod_inputs(self, main_module: GraphModule, submod_path: str) -> tuple[Any, Any]:
        """Find the inputs of a part for either way: kept ones, or those of a run of the whole module."""
        part: Any = getattr(main_module, submod_path)
        names = [node.name for node in graph_of(part).placeholders()]
        if all(name in self.a_outputs for name in names):
            inputs = [self.a_outputs[name] for name in names]
            return inputs, [self.b_outputs[name] for name in names] if self.settings.accumulate_error else inputs
        if self.settings.accumulate_error:
            print(f"Can't find previous stored outputs named {names}!")
        found: Any = ()

        def keep(module: Any, arguments: Any) -> None:
            nonlocal found
            found = arguments

        handle = part.register_forward_pre_hook(keep)
        try:
            main_module(*self.sample_input)
        finally:
            handle.remove()
        return found, found

    def _tag_nodes(self, selected_nodes: NodeSet) -> None:
        """Tag these nodes "minimize", what they need "main_0" and the others "main_1"."""
        before: NodeSet = set()
        for node in reversed(graph_of(self.module).nodes):
            if node.op not in CALLABLE_NODE_OPS:
                continue
            if node in selected_nodes:
                node.tag = "minimize"  # type: ignore[attr-defined]
            elif any(user in before or user in selected_nodes for user in node.users):
                node.tag = "main_0"  # type: ignore[attr-defined]
                before.add(node)
            else:
                node.tag = "main_1"  # type: ignore[attr-defined]

    def _build_submodule(self, nodes: NodeSet) -> tuple[GraphModule, str]:
        """Split the module so that these nodes are one part; give both and the name of the part."""
        self._tag_nodes(nodes)
        split: GraphModule = split_by_tags(self.module, ["main_0", "minimize", "main_1"])
        found = [name for name, _ in split.named_children() if "minimize" in name]
        if not found:
            raise FxNetMinimizerBadModuleError(f"Minimize submodule was not found with nodes {nodes}")
        return split, found[0]

    def _run_and_compare(
        self, split_module: GraphModule, submod_name: str, output_names: Names, report_idx: int = -1
    ) -> None:
        """Run a part both ways and compare; `output_names`, if any, are the nodes to look at.

        Raises FxNetMinimizerRunFuncError or FxNetMinimizerResultMismatchError.
        """
        part: Any = getattr(split_module, submod_name)
        a_input, b_input = self._get_submod_inputs(split_module, submod_name)
        report = self.reports[report_idx if report_idx >= 0 else self.iteration - 1]
        report.append("Run and compare ...")
        if output_names and not self.settings.all_outputs:
            _return_only(part, output_names)
        try:
            a_result = self.run_a(part, a_input, report_idx)
            b_result = self.run_b(part, b_input, report_idx)
            self._store_outputs(a_result, b_result, part)
        except Exception as error:
            text = f"Exception raised when running {submod_name}: {error}"
            report.append(text)
            raise FxNetMinimizerRunFuncError(text) from error
        names: Any = map_arg(graph_of(part).output_node().args, lambda node: node.name)
        names = tuple([tuple(each) if isinstance(each, list) else each for each in names])
        number, agrees = self.compare_fn(a_result, b_result, output_names)
        self.results[names] = number
        report.append(f"Numerical accuracy = {number}")
        if not agrees:
            report.append(f"Result mismatch for {names}")
            if self.module_exporter:
                first = names[0][0] if isinstance(names[0], tuple) else names[0]
                self.module_exporter(a_input, part, f"{first}_cpu")
                self.module_exporter(b_input, part, f"{first}_acc")
                raise FxNetMinimizerResultMismatchError(f"Result mismatch for {first}")
            raise FxNetMinimizerResultMismatchError(f"Result mismatch for {names}")

    def _with_fused(self, nodes: NodeList) -> NodeSet:
        """The nodes, and those that have to stay with them."""
        return set(nodes).union(*[self.fusions.get(node, ()) for node in nodes])

    def _begin(self, *lines: str) -> list[str]:
        """Start the report of a further run."""
        self.iteration += 1
        report = [line.replace("#", str(self.iteration), 1) for line in lines]
        self.reports.append(report)
        return report

    def _excluded(self, nodes: NodeList, start: int = -1, end: int = -1) -> bool:
        """Let `exclusion_fn` take nodes out of the list; tell whether none is left."""
        if self.exclusion_fn is not None:
            self.exclusion_fn(nodes, start, end)
        return not nodes

    # ---- ways to search

    def _binary_search_impl(self, all_nodes: NodeList, start_idx: int, end_idx: int) -> NodeSet:
        nodes = all_nodes[start_idx:end_idx]
        if self._excluded(nodes, start_idx, end_idx):
            return set()
        report = self._begin("Binary search iteration #")
        report.append(
            f"From node index {start_idx}:{nodes[0].name} to {end_idx - 1}:{nodes[-1].name}."
            f" Size of the interested node list is {len(nodes)}"
        )
        try:
            split, name = self._build_submodule(set(nodes))
            self._run_and_compare(split, name, [nodes[-1].name])
        except (FxNetMinimizerRunFuncError, FxNetMinimizerResultMismatchError):
            if len(nodes) == 1:
                report.append(
                    "This is the last node in the sub-module. Search in the current branch is successful with"
                    f" culprit = {set(nodes)}."
                )
                self.print_report(report)
                return set(nodes)
            report.append(_SPLIT_ON)
            self.print_report(report)
            middle = start_idx + (end_idx - start_idx) // 2
            found = self._binary_search_impl(all_nodes, start_idx, middle)
            if not found or self.settings.find_all:
                found |= self._binary_search_impl(all_nodes, middle, end_idx)
            if not found:
                report.append(
                    "Further split and lowering found no errors. Unable to minimize the submodule with list of nodes:"
                    f" {nodes}"
                )
                self.print_report(report)
            return found
        report.append("No discrepancy found.")
        self.print_report(report)
        return set()

    def _binary_traverse(self, nodes: NodeList) -> NodeSet:
        return self._binary_search_impl(nodes, 0, len(nodes))

    def _sequential_traverse(self, nodes: NodeList) -> NodeSet:
        culprits: NodeSet = set()
        for node in nodes:
            if self._excluded([node]):
                return culprits
            report = self._begin("Sequential traverse iteration #.", f"Visit node: {node.name}")
            chosen = self._with_fused([node])
            try:
                split, name = self._build_submodule(chosen)
                self._run_and_compare(split, name, [node.name])
            except FxNetMinimizerResultMismatchError:
                report.append(f"Found culprit from numeric error: {node}")
            except FxNetMinimizerRunFuncError:
                report.append(f"Found culprit from run error: {node}")
            else:
                self.print_report(report)
                continue
            self.print_report(report)
            culprits |= {node} if node not in self.fusions else chosen
            if not self.settings.find_all:
                return culprits
        return culprits

    def _block_traverse_impl(self, nodes: NodeList, start_idx: int, end_idx: int, find_last_node: bool) -> int | None:
        """Find the last, or else the first, node of the block that differs, between two places; None without one."""
        middle = start_idx + (end_idx - start_idx) // 2
        chosen = nodes[: middle + 1] if find_last_node else nodes[middle:]
        if self._excluded(chosen):
            return None
        first, last = chosen[0].name, chosen[-1].name
        report = self._begin(
            "=" * 30,
            "Block search iteration #",
            f"Search for {'last' if find_last_node else 'first'} node in culprits",
            f"From node index {start_idx}:{nodes[start_idx].name} to {end_idx}:{nodes[end_idx].name}. ",
            f"Subgraph constructed by {first} to {last}",
            f"Targeting node: {nodes[middle].name}",
            f"Size of the interested node list is {end_idx - start_idx + 1}",
        )
        try:
            split, name = self._build_submodule(set(chosen))
            self._run_and_compare(split, name, [last], self.iteration)
        except (FxNetMinimizerRunFuncError, FxNetMinimizerResultMismatchError):
            report.append(f"Culprits found from node {first} to {last}.")
            if start_idx == end_idx:
                report += [
                    "This is the last node in the sub-module. ",
                    "Search in the current branch is successful with node :",
                    f"{start_idx}, node name: {nodes[start_idx].name}.",
                ]
                self.print_report(report)
                return start_idx
            go_left = find_last_node
        else:
            report.append(f"Culprits not found from node start to {middle}:{nodes[middle].name}.")
            if start_idx == end_idx:
                at_end = start_idx == (len(nodes) - 1 if find_last_node else 0)
                if not at_end:
                    return start_idx + 1 if find_last_node else start_idx - 1
                report.append(f"At {'last' if find_last_node else 'first'} node, no culprits found.")
                self.print_report(report)
                return None
            go_left = not find_last_node
        report.append(_SPLIT_ON)
        self.print_report(report)
        if go_left:
            return self._block_traverse_impl(nodes, start_idx, middle, find_last_node)
        return self._block_traverse_impl(nodes, middle + 1, end_idx, find_last_node)

    def _block_traverse(self, nodes: NodeList, find_last_node: bool | None) -> NodeSet:
        if not nodes:
            return set()
        start, end = 0, len(nodes) - 1
        report = [f"Block search from {nodes[start].name} to {nodes[end].name}", "*" * 50]
        self.reports.append(report)
        found: int | None
        if find_last_node is not False:
            report.append("Start searching for last node in culprit")
            self.print_report(report)
            found = self._block_traverse_impl(nodes, start, end, True)
            if found is None:
                report.append("No culprits found")
                self.print_report(report)
                return set()
            end = found
            report += ["Finish Pass 1", f"Find end_idx = {end}:{nodes[end].name}"]
            self.print_report(report)
        if not find_last_node:
            title = "Start searching for first node in culprit"
            self.print_report([title])
            found = self._block_traverse_impl(nodes, start, end, False)
            if found is None:
                report.append("No culprits found")
                self.print_report(report)
                return set()
            start = found
            report = [title, "*" * 50, "Finish Pass 2", f"Find start_idx = {start}:{nodes[start].name}"]
            self.reports.append(report)
            self.print_report(report)
        report = [f"Finish searching, found minimum block ({nodes[start]},{nodes[end]})"]
        self.reports.append(report)
        self.print_report(report)
        return set(nodes[start : end + 1])

    def _defined_traverse(self, nodes: NodeList) -> NodeSet:
        if not nodes or self._excluded(nodes):
            return set()
        self._begin()
        report = [f"Defined graph from {nodes[0].name} to {nodes[-1].name}"]
        chosen = set(nodes)
        try:
            split, name = self._build_submodule(self._with_fused(nodes))
            self._run_and_compare(split, name, [nodes[-1].name])
        except (FxNetMinimizerRunFuncError, FxNetMinimizerResultMismatchError):
            report.append(f"Found culprit {chosen}")
            self.print_report(report)
            return chosen
        self.print_report(report)
        return set()

    def _accumulate_traverse(self, nodes: NodeList) -> NodeSet:
        if self.settings.find_all:
            print("'Find All' mode is not supported in accumulate traversal.")
            return set()
        chosen: NodeSet = set()
        for node in nodes:
            report = self._begin("Accumulate traverse iteration #.")
            chosen.add(node)
            report.append(f"Add node: {node.name}")
            try:
                split, name = self._build_submodule(chosen)
                self._run_and_compare(split, name, [node.name])
            except (FxNetMinimizerRunFuncError, FxNetMinimizerResultMismatchError):
                report.append(f"Found culprit {node}")
                self.print_report(report)
                return {node}
            self.print_report(report)
        return set()

    def _skip_traverse_impl(self, all_nodes: NodeList, start_idx: int, end_idx: int) -> NodeSet:
        nodes = all_nodes[start_idx:end_idx]
        if self._excluded(nodes, start_idx, end_idx):
            return set()
        chosen = set(nodes)
        report = self._begin(" Nodes block #.")
        report.append(f"From node index {start_idx} to {end_idx - 1}. Size of the interested node list is {len(nodes)}")
        try:
            split, name = self._build_submodule(self._with_fused(nodes))
            self._run_and_compare(split, name, [])
        except FxNetMinimizerResultMismatchError:
            report.append(f"Found culprit from numeric error: {chosen}")
            self.print_report(report)
            return chosen
        except FxNetMinimizerRunFuncError:
            report.append(f"Found culprit from run error: {chosen}")
            self.print_report(report)
            return chosen
        report.append("No discrepancy found.")
        self.print_report(report)
        return set()

    def _skip_traverse(self, all_nodes: NodeList, skip_nodes: list[str]) -> NodeSet:
        """Run what lies between the nodes to skip; the culprits are those of all runs."""
        culprits: NodeSet = set()
        start = 0
        for i, node in enumerate(all_nodes):
            if node.name in skip_nodes:
                if start < i:
                    culprits |= self._skip_traverse_impl(all_nodes, start, i)
                start = i + 1
        if start < len(all_nodes):
            culprits |= self._skip_traverse_impl(all_nodes, start, len(all_nodes))
        return culprits

    # ---- the search

    def _collect_nodes(self, start: str | None, end: str | None) -> NodeList:
        """Collect the calls from one node to another, by names; None is the first and the last one."""
        found: NodeList = []
        begun = start is None
        for node in graph_of(self.module).nodes:
            begun = begun or node.name == start
            if begun and node.op in CALLABLE_NODE_OPS:
                found.append(node)
            if node.name == end:
                break
        return found

    def run_nodes(self, start: str | None = None, end: str | None = None) -> None:
        """Run the nodes from one to another, by names, both ways, and print what is wrong, if anything."""
        nodes = self._collect_nodes(start, end)
        names = [node.name for node in nodes] if self.settings.return_intermediate else []
        self._begin()
        try:
            split, name = self._build_submodule(self._with_fused(nodes))
            self._run_and_compare(split, name, names)
        except (FxNetMinimizerRunFuncError, FxNetMinimizerResultMismatchError) as error:
            print(error)

    def print_report(self, report: list[str]) -> None:
        """Print the lines of one run, all but the first with a bullet."""
        for i, line in enumerate(report):
            print(f" . {line}" if i else line)

    def print_reports(self) -> None:
        """Print the lines of all runs."""
        for report in self.reports:
            self.print_report(report)

    def minimize(
        self,
        start: str | None = None,
        end: str | None = None,
        skip_nodes: list[str] | None = None,
        find_last_node: bool | None = None,
    ) -> NodeSet:
        """Search the nodes from one to another, by names, in the way that the settings say; return those that differ.

        `skip_nodes` is for the method "skip". For "block", `find_last_node` searches only for the last node, or
        only for the first one. Raises PassError (a RuntimeError) for an unknown method.
        """
        print(self.settings)
        print(graph_of(self.module))
        nodes = self._collect_nodes(start, end)
        method = self.settings.traverse_method
        if method == "skip":
            if skip_nodes is None:
                raise PassError("'skip_nodes' can't be None when 'traverse_method' is 'skip'.")
            return self._skip_traverse(nodes, skip_nodes)
        if method == "block":
            return self._block_traverse(nodes, find_last_node)
        searches = {
            "sequential": self._sequential_traverse,
            "binary": self._binary_traverse,
            "accumulate": self._accumulate_traverse,
            "defined": self._defined_traverse,
        }
        if method not in searches:
            raise PassError(f"Unknown traverse method {method}!")
        return searches[method](nodes)


def _return_only(part: GraphModule, names: Names) -> None:
    """Make a part return the nodes of these names, one of them as it is."""
    graph = graph_of(part)
    by_name = {node.name: node for node in graph.nodes}
    values = tuple([by_name[name] for name in names])
    old = graph.output_node()
    with graph.inserting_before(old):
        new = graph.create_node("output", "output", (values[0] if len(values) == 1 else values,), None, f"{old.name}_1")
    graph.erase_node(old)
    assert isinstance(new, Node)
    part.recompile()
