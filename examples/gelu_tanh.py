"""Replace every GELU of a model by its tanh approximation, in ten lines, and see what that does to the results.

$ python examples/gelu_tanh.py
"""

import torch
from torch import nn
from torch.nn import functional as F

import graphwright


def use_tanh_gelu(gm: graphwright.GraphModule) -> int:
    """Replace every GELU, function or module, by its tanh approximation; return how many there were."""
    changed = 0
    for node in gm.graph.nodes:
        if node.op == "call_module" and type(gm.get_submodule(node.target)) is nn.GELU:
            with gm.graph.inserting_before(node):
                approximate = gm.graph.call_function(F.gelu, node.args, {"approximate": "tanh"})
            node.replace_all_uses_with(approximate)
            gm.graph.erase_node(node)
        elif node.target is F.gelu and node.kwargs.get("approximate") != "tanh":
            node.kwargs = {"approximate": "tanh"}
        else:
            continue
        changed += 1
    return changed


class Block(nn.Module):
    """What follows attention in a transformer, with GELU spelled in two ways."""

    def __init__(self, width: int = 32) -> None:
        super().__init__()
        self.widen, self.narrow = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)
        self.norm, self.act = nn.LayerNorm(width), nn.GELU()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = x + self.narrow(self.act(self.widen(x)))
        return self.norm(F.gelu(x))


def main() -> None:
    torch.manual_seed(0)
    model, x = nn.Sequential(Block(), Block()).eval(), torch.randn(8, 32)
    gm = graphwright.symbolic_trace(model)
    assert torch.equal(gm(x), model(x))
    print(f"{use_tanh_gelu(gm)} GELUs replaced:\n\n{gm.code.strip()}\n")
    difference = (gm(x) - model(x)).abs().max().item()
    print(f"the largest change of a result is {difference:.1e}; a second run changes {use_tanh_gelu(gm)}")


if __name__ == "__main__":
    main()
