"""Scripted modules: submodules, attributes, containers, marks."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.nn.functional as F
from tests.script.checking import check
from torch import Tensor, nn

from graphwright import ScriptError, script
from graphwright.script import ignore, is_scripting, unused

P, N, Z = torch.arange(6.0).reshape(2, 3) - 1.5, -torch.ones(2, 3), torch.zeros(2, 3)
XS = [(P,), (N,), (Z,), (P * 10,)]
MODULES: list[tuple[type[nn.Module], Any]] = []


def module(inputs: Any) -> Any:
    """Have a module checked on these inputs, in both modes."""

    def add(kind: Any) -> Any:
        MODULES.append((kind, inputs))
        return kind

    return add


@module(XS)
class Gate(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(3, 3)
        self.scale = nn.Parameter(torch.ones(3) * 2)
        self.register_buffer("steps", torch.zeros((), dtype=torch.long))
        self.bias = None
        self.heads = 3
        self.use = True

    def forward(self, x):
        self.steps += 1
        y = self.linear(x) * self.scale
        if self.bias is not None:
            y = y + self.bias.foo
        if self.use:
            y = y + 1
        else:
            y = self.nothing(y)
        if self.training:
            return y, y * 2
        return y.softmax(-1), y


@module(XS)
class Stack(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList([nn.Linear(3, 3) for _ in range(3)])
        self.seq = nn.Sequential(nn.Linear(3, 3), nn.ReLU(), Inner())
        self.d = nn.ModuleDict({"a": nn.Linear(3, 3), "b": nn.Tanh()})
        self.ps = nn.ParameterList([nn.Parameter(torch.ones(3)) for _ in range(2)])
        self.block_0, self.block_1 = nn.Linear(3, 3), nn.Linear(3, 3)

    def forward(self, x):
        for i, layer in enumerate(self.layers):
            x = layer(x) + i
            if x.sum() > 2:
                break
        x = self.seq(x)
        for name, m in self.d.items():
            if name == "b":
                x = m(x)
        x = self.d["a"](x)
        for p in self.ps:
            x = x * p
        for i in range(len(self.layers)):
            x = self.layers[i](x)
        for i in range(2):
            x = getattr(self, f"block_{i}")(x)
        for a, b in zip(self.layers, self.layers[1:]):
            x = a(b(x))
        return x + self.ps[0] + self.layers[-1](x)


class Inner(nn.Module):
    def __init__(self):
        super().__init__()
        self.lin = nn.Linear(3, 3)
        self.n: int = 2
        self.sizes = [1, 2, 3]
        self.cfg = {"k": 2}

    def helper(self, x, k: int = 2):
        if x.mean() > 0:
            return self.lin(x) * k
        return x

    def forward(self, x):
        y = self.helper(x, k=self.n)
        for s in self.sizes:
            y = y + s
        return self.helper(y) * self.cfg["k"]


MODULES.append((Inner, XS))


@module(XS)
class Counter(nn.Module):
    def __init__(self):
        super().__init__()
        self.n = 0
        self.hidden = torch.zeros(3)
        self.log: list[int] = []

    def forward(self, x):
        self.n += 1
        if self.n > 1:
            x = x + self.hidden
        self.hidden = x.mean(0).detach()
        self.log.append(self.n)
        return x * self.n


@module(XS)
class Base(nn.Module):
    def __init__(self):
        super().__init__()
        self.lin = nn.Linear(3, 3)

    def forward(self, x):
        return self.lin(x)


@module(XS)
class Derived(Base):
    @property
    def twice(self):
        return self.lin.weight * 2

    @staticmethod
    def stat(x):
        return x - 1

    @torch.no_grad()
    def target(self, x):
        return self.lin(x).softmax(-1)

    def forward(self, x):
        y = super().forward(x)
        return y @ self.twice + self.stat(x) + self.target(x)


@module(XS)
class Rnn(nn.Module):
    def __init__(self):
        super().__init__()
        self.cell = nn.GRUCell(3, 4)
        self.lstm = nn.LSTM(3, 4, batch_first=True)

    def forward(self, x):
        h = torch.zeros(1, 4)
        outs = []
        for t in range(x.size(0)):
            h = self.cell(x[t : t + 1], h)
            outs.append(h)
        y, (hn, cn) = self.lstm(x[None])
        return torch.cat(outs), hn + cn, y


@module(XS)
class Marked(nn.Module):
    def __init__(self):
        super().__init__()
        self.lin = nn.Linear(3, 3)

    @ignore
    def py(self, x):
        return [x for x in {1: x}.values()][0] * 2

    @unused
    def no(self, x):
        yield x

    def forward(self, x):
        if is_scripting():
            y = self.py(x)
        else:
            y = x * 2
        if x.sum() > 1000:
            self.no(x)
        return self.lin(y)


@module(XS)
class Subs(nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = Inner()
        self.inner.register_forward_hook(lambda m, a, o: o * 2)
        self.act = F.relu
        self.act2 = torch.tanh

    def forward(self, x):
        y = self.inner(x)
        y = self.act(y) + self.act2(y)
        print(y.shape, file=None) if False else None
        w = torch.empty(3)
        nn.init.constant_(w, 2.0)
        return F.dropout(y, 0.5, self.training) * w, F.linear(x, self.inner.lin.weight)


@module([(P, 0, "plain"), (P, 1, "sharp")])
class Chosen(nn.Module):
    """What only a run knows is which module it is of which something is read."""

    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList([nn.Linear(3, 3), nn.Linear(3, 3)])
        self.heads = nn.ModuleDict({"plain": nn.Sequential(nn.ReLU()), "sharp": nn.Sequential(nn.Tanh())})

    def forward(self, x, i: int, name: str):
        y = x @ self.layers[i].weight + self.layers[i].forward(x)
        sizes = set([i, 2, 2])
        return self.heads[name][0](y) * pow(i, 2) + len(sizes) + callable(self.heads) + callable(i)


@pytest.mark.parametrize(("kind", "inputs"), MODULES, ids=[kind.__name__ for kind, _ in MODULES])
@pytest.mark.parametrize("training", [True, False], ids=["train", "eval"])
def test_it_does_what_python_does(kind: type[nn.Module], inputs: Any, training: bool) -> None:
    torch.manual_seed(0)
    model = kind().train(training)
    assert isinstance(check(model, inputs), kind)


class KnowsItsDevice(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(3, 3), nn.Linear(3, 3)

    @property
    def dtype(self) -> torch.dtype:
        return next(self.parameters()).dtype

    def forward(self, x: Tensor) -> Tensor:
        name, weight = next(self.named_parameters())
        missing = next(self.buffers(), None)
        return x.to(next(self.parameters()).device, self.dtype) * weight.sum() + (len(name) if missing is None else 0)


def test_the_first_of_what_a_module_lists() -> None:
    model = KnowsItsDevice()
    gm = script(model)
    for _ in range(2):
        assert torch.equal(gm(torch.ones(2, 3)), model(torch.ones(2, 3)))
        gm, model = gm.double(), model.double()


def test_an_iterator_that_has_given_some_is_refused() -> None:
    class Walks(KnowsItsDevice):
        def forward(self, x: Tensor) -> Tensor:
            parameters = self.parameters()
            return x * next(parameters).sum() + next(parameters)

    class Begins(KnowsItsDevice):
        def forward(self, x: Tensor) -> Tensor:
            for weight in iter(self.parameters()):
                x = x * weight.sum()
            return x

    for kind in Walks, Begins:
        with pytest.raises(ScriptError, match="iterators cannot be scripted"):
            script(kind())
