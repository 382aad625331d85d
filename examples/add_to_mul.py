"""Change what a program does without touching its source: every `torch.add` becomes `torch.mul`.

$ python examples/add_to_mul.py
"""

import torch
from torch import nn

import graphwright


class Mix(nn.Module):
    """Adds things up, in a function and in a module."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.tensor([1.0, 2.0, 3.0]))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.add(torch.add(x, self.weight), 10)


def multiply_instead(gm: graphwright.GraphModule) -> int:
    """Make every torch.add a torch.mul; return how many there were."""
    additions = gm.graph.find_nodes(op="call_function", target=torch.add)
    for node in additions:
        node.target = torch.mul
    return len(additions)


def main() -> None:
    model, x = Mix(), torch.tensor([1.0, 1.0, 1.0])
    gm = graphwright.symbolic_trace(model)
    print(f"captured:\n\n{gm.code.strip()}\n\n{x.tolist()} -> {gm(x).tolist()}\n")
    count = multiply_instead(gm)  # takes effect by itself: nothing to recompile
    print(f"{count} torch.add became torch.mul:\n\n{gm.code.strip()}\n\n{x.tolist()} -> {gm(x).tolist()}\n")
    print(f"the original is as it was: {x.tolist()} -> {model(x).tolist()}")


if __name__ == "__main__":
    main()
