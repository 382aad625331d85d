"""What rewriting does to a program: the right code, the same values, and nothing else."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import graphwright as gw
from graphwright import Lit, mod, one_of, rewrite, rule, symbolic_trace
from graphwright.ops import unpack
from graphwright.passes import ShapeProp
from graphwright.rewrite import Calls, GraphEffects, replay

X = torch.linspace(-2.0, 2.0, 12).view(3, 4)


def body(gm: Any) -> list[str]:
    """The statements of the generated code, without what frees values."""
    lines = [line.split(";")[0].strip() for line in gm.code.strip().splitlines()]
    return [line for line in lines[1:] if line and not line.startswith("#")]


CASES: list[Any] = [
    pytest.param(
        lambda x: torch.cat([torch.neg(x), x]).sum() + torch.cat([torch.neg(x * 2), x]).sum(),
        [rule(lambda a, b: torch.cat([torch.neg(a), b]).sum(), lambda c, d: d.sum() - c.sum())],
        ["sum_3 = x.sum()", "sum_4 = x.sum()", "sub = sum_3 - sum_4", "mul = x * 2", "sum_5 = x.sum()",
         "sum_6 = mul.sum()", "sub_1 = sum_5 - sum_6", "add = sub + sub_1", "return add"],
        2,
        id="two places, parameters by position",
    ),
    pytest.param(
        lambda x: torch.cat([torch.cat([x, x]), torch.cat([x, x])]),
        [rule(lambda a, b: torch.cat([a, b]), lambda a, b: torch.stack([a, b]).flatten(0, 1))],
        ["stack = torch.stack([x, x])", "flatten = stack.flatten(0, 1)", "stack_1 = torch.stack([x, x])",
         "flatten_1 = stack_1.flatten(0, 1)", "stack_2 = torch.stack([flatten, flatten_1])",
         "flatten_2 = stack_2.flatten(0, 1)", "return flatten_2"],
        3,
        id="a chain of matches in lists",
    ),
    pytest.param(
        lambda x: x.abs().abs().abs().abs(),
        [rule(lambda x: x.abs().abs(), lambda x: x.abs())],
        ["abs_7 = x.abs()", "return abs_7"],
        None,
        id="matches that overlap",
    ),
    pytest.param(
        lambda x: (x + 0) * 1 + 0,
        [rule(lambda x: x + 0, lambda x: x), rule(lambda x: x * 1, lambda x: x)],
        ["return x"],
        3,
        id="one rule feeds another",
    ),
    pytest.param(
        lambda x: (torch.exp(x).log(), torch.exp(x)),
        [rule(lambda x: torch.log(torch.exp(x)), lambda x: x)],
        ["exp_1 = torch.exp(x)", "return (x, exp_1)"],
        1,
        id="of two equal intermediates only the own one goes",
    ),
    pytest.param(
        lambda x: (lambda y: y.log() + y)(torch.exp(x)),
        [rule(lambda x: torch.log(torch.exp(x)), lambda x: x)],
        ["exp = torch.exp(x)", "add = x + exp", "return add"],
        1,
        id="an intermediate that others read stays",
    ),
    pytest.param(
        lambda x: (x.sin() + 1, x.cos() + 2),
        [rule(lambda x: (x.sin(), x.cos()), lambda x: (x.cos(), x.sin()))],
        ["cos_1 = x.cos()", "sin_1 = x.sin()", "add = cos_1 + 1", "add_1 = sin_1 + 2", "return (add, add_1)"],
        1,
        id="two values",
    ),
    pytest.param(
        lambda x: F.relu(x) + 1,
        [rule(lambda x: F.relu(x), lambda x: F.relu(x).clamp(max=9.0))],
        ["relu_1 = torch.nn.functional.relu(x, inplace = False)", "clamp = relu_1.clamp(max = 9.0)",
         "add = clamp + 1", "return add"],
        1,
        id="a replacement that has the pattern inside",
    ),
    pytest.param(
        lambda x: x.pow(4),
        [rule(lambda x, n=Lit(int): x.pow(n), lambda x, n: x.pow(n - 1) * x, where=lambda m: m.n > 1, recursive=True)],
        ["pow_4 = x.pow(1)", "mul_2 = pow_4 * x", "mul_1 = mul_2 * x", "mul = mul_1 * x", "return mul"],
        3,
        id="a rule on what it has written",
    ),
    pytest.param(
        lambda x: x.sum() * 2,
        [rule(lambda x: x.sum(), lambda x: 3.0)],
        ["return 6.0"] and ["mul = 3.0 * 2", "return mul"],
        1,
        id="a literal in the place of a value",
    ),
    pytest.param(
        lambda x: torch.split(x, 2, 1)[0] + 1,
        [rule(lambda x, n=Lit(int): torch.split(x, n, 1), lambda x, n: (x[:, :n], x[:, n:]))],
        None,
        1,
        id="a container in the place of a value",
    ),
]  # fmt: skip


@pytest.mark.parametrize(("program", "rules", "expected", "count"), CASES)
def test_code_after_rewriting(program: Any, rules: Any, expected: Any, count: Any) -> None:
    gm = symbolic_trace(program)
    result = rewrite(gm, rules)
    gm.graph.lint()
    if expected is not None:
        assert body(gm) == expected
    if count is not None:
        assert result.count == count
    assert rewrite(gm, [each for each in rules if not each.recursive and "abs" not in str(each)]).count in (0, 1)


class Block(nn.Module):
    """Linear, activation, layer norm, with the weights of the first layer shared."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(4, 4), nn.Linear(4, 4)
        self.again = self.first
        self.norm = nn.LayerNorm(4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        h = F.gelu(self.first(x))
        h = torch.relu(self.second(h)) + self.again(x)
        return F.layer_norm(h, (4,), self.norm.weight, self.norm.bias)


def test_parameters_of_a_matched_module_are_values() -> None:
    model = Block()
    gm = symbolic_trace(model)

    def fused(x: Any, linear: Any, act: Callable[..., Any]) -> Any:
        assert linear.in_features == 4
        return act(torch.addmm(linear.bias, x, linear.weight.t()))

    activated = rule(lambda x, linear=mod(nn.Linear): one_of(torch.relu, F.gelu, name="act")(linear(x)), fused)
    assert rewrite(gm, [activated]).count == 2
    assert gw.verify(model, gm, [(X,)], grads=True).ok
    assert {node.target for node in gm.graph.find_nodes(op="get_attr")} >= {"first.weight", "second.bias"}


def test_a_replacement_may_bring_modules_and_tensors() -> None:
    model = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 4))
    gm = symbolic_trace(model)

    def merged(x: Any, match: Any) -> Any:
        wide = nn.Linear(4, 4)
        with torch.no_grad():
            wide.weight.copy_(match.second.weight @ match.first.weight)
            wide.bias.copy_(match.second.weight @ match.first.bias)
        return match.install(wide, "merged")(x) + match.second.bias.detach()

    pair = rule(lambda x: mod(nn.Linear, "second")(mod(nn.Linear, "first")(x)), merged)
    assert rewrite(gm, [pair]).count == 1
    assert body(gm) == [
        "input_1 = input",
        "merged = self.merged(input_1)",
        "constant = self.constant",
        "add = merged + constant",
        "return add",
    ]
    torch.testing.assert_close(gm(X), model(X))


class Scale(nn.Module):
    """A replacement with a parameter."""

    def __init__(self) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.full((4,), 2.0))
        self.inner = nn.Linear(4, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.inner(x) * self.scale


def test_a_module_as_replacement_brings_its_own() -> None:
    replacement = Scale()
    gm = symbolic_trace(lambda x: torch.relu(x))
    rewrite(gm, [rule(torch.relu, replacement)])
    assert torch.equal(gm(X), replacement(X))
    assert dict(gm.named_parameters()).keys() == {"scale", "inner.weight", "inner.bias"}


def test_new_nodes_come_from_where_the_old_ones_did() -> None:
    gm = symbolic_trace(lambda x: torch.relu(x.neg()) + 1)
    relu = gm.graph.find_nodes(op="call_function", target=torch.relu)[0]
    relu.meta["tag"] = 7
    origin = relu.origin
    rewrite(gm, [rule(lambda x: torch.relu(-x), lambda x: torch.clamp(x, max=0.0).abs(), name="turn")])
    clamp, absolute = list(gm.graph.nodes)[1:3]
    assert clamp.origin == absolute.origin == origin
    assert absolute.meta["tag"] == 7
    assert "tag" not in clamp.meta
    assert [source.name for source in clamp.meta["from_node"]] == ["neg", "relu"]
    assert clamp.meta["from_node"][0].pass_name == "turn"


def test_new_nodes_are_described_where_the_old_ones_were() -> None:
    model = nn.Sequential(nn.Linear(4, 6), nn.ReLU())
    gm = symbolic_trace(model)
    ShapeProp(gm).propagate(X)
    split = rule(
        lambda x, linear=mod(nn.Linear): linear(x),
        lambda x, linear: torch.cat([F.linear(x, linear.weight[:3]), F.linear(x, linear.weight[3:])], 1) + linear.bias,
    )
    halves = rule(lambda x, y: torch.cat([x, y], 1), lambda x, y: torch.hstack([x, y]), where=narrow)
    result = rewrite(gm, [split, halves])
    assert [each.applied for each in result.rules.values()] == [1, 1]
    shapes = {node.name: tuple(node.meta.shape) for node in gm.graph.nodes}
    ShapeProp(gm).propagate(X)
    assert shapes == {node.name: tuple(node.meta.shape) for node in gm.graph.nodes}
    torch.testing.assert_close(gm(X), model(X))


def narrow(match: Any) -> bool:
    return match.x.meta.shape[1] == match.y.meta.shape[1] == 3


# ---- what is refused


def write_between(x: torch.Tensor) -> torch.Tensor:
    y = x.clone()
    first = y.neg()
    y.add_(1)
    return first.neg() + y


def write_through_a_view(x: torch.Tensor) -> torch.Tensor:
    y = x.clone()
    first = y.neg()
    y.view(-1)[0] = 9.0
    return first.neg() + y


def write_elsewhere(x: torch.Tensor) -> torch.Tensor:
    y, z = x.clone(), x.clone()
    first = y.neg()
    z.add_(1)
    return first.neg() + z


def write_to_what_stays(x: torch.Tensor) -> torch.Tensor:
    y = x.clone()
    result = y.neg().neg()
    result.add_(1)
    return result + y


def grad_mode(x: torch.Tensor) -> torch.Tensor:
    with torch.no_grad():
        y = x.neg()
    return y.neg() * x


def inside_one_grad_mode(x: torch.Tensor) -> torch.Tensor:
    with torch.no_grad():
        y = x.neg().neg().sum()
    return y * x


def out_of_a_grad_mode(x: torch.Tensor) -> torch.Tensor:
    with torch.no_grad():
        y = x.neg().neg()
    return y * x


def unknown_between(x: torch.Tensor) -> torch.Tensor:
    y = x.neg()
    touch(y)
    return y.neg()


@gw.wrap
def touch(x: torch.Tensor) -> None:
    x.mul_(3)


REFUSED = [
    pytest.param(write_between, "add_ writes to clone between neg and neg_1", id="a write between"),
    pytest.param(write_through_a_view, "writes to view between neg and neg_1", id="a write through a view"),
    pytest.param(write_elsewhere, None, id="a write elsewhere"),
    pytest.param(write_to_what_stays, "have to stay two values", id="a write to the value"),
    pytest.param(grad_mode, "inside a `with` block and others are not", id="two grad modes"),
    pytest.param(inside_one_grad_mode, None, id="one grad mode"),
    pytest.param(out_of_a_grad_mode, "comes out of a `with` block, and x is computed outside", id="out of a grad mode"),
    pytest.param(unknown_between, "touch writes to neg between neg and neg_1", id="a call of nobody knows what"),
]


@pytest.mark.parametrize(("program", "why"), REFUSED)
def test_what_would_change_the_meaning_is_refused(program: Any, why: str | None) -> None:
    gm = symbolic_trace(program)
    double = rule(lambda x: x.neg().neg(), lambda x: x)
    result = rewrite(gm, [double])
    for x in (X.clone().requires_grad_(), torch.ones(2, 2)):
        expected, actual = program(x.clone()), gm(x.clone())
        torch.testing.assert_close(actual, expected)
        assert actual.requires_grad == expected.requires_grad
    if why is None:
        assert result.count == 1
    else:
        assert result.count == 0
        ((node, reason),) = result.rules[double].refused
        assert why in reason
        root = next(each for each in gm.graph.nodes if each.name == node)
        assert why in str(gw.explain(double, root))


def across_a_border(x: torch.Tensor) -> torch.Tensor:
    y = x.neg()
    if x.sum() > 0:
        return y.neg()
    return y


def test_a_match_lies_on_one_side_of_a_border() -> None:
    gm = symbolic_trace(across_a_border)
    double = rule(lambda x: x.neg().neg(), lambda x: x)
    assert rewrite(gm, double).count == 0
    inner = next(node for node in gm.graph.all_nodes() if node.target == "neg" and node.graph is not gm.graph)
    assert "an input of a branch or loop, whose border no match crosses" in str(gw.explain(double, inner, gm))


def relu_on_what_a_view_shows(x: torch.Tensor) -> torch.Tensor:
    y = x * 2
    view = y.view(-1)
    nn.functional.relu(y, inplace=True)
    return view.sum() + y


def relu_on_an_input(x: torch.Tensor) -> torch.Tensor:
    return torch.relu_(x) + 1


def relu_on_a_sum(x: torch.Tensor) -> torch.Tensor:
    y = x * 2
    y += x
    return nn.functional.relu(y, inplace=True)


def relu_out_of_place(x: torch.Tensor) -> torch.Tensor:
    y = x * 2
    y.add_(1)
    return torch.relu(y) + y


IN_PLACE = [  # each with how often it is rewritten
    pytest.param(relu_on_what_a_view_shows, 0, id="a view shows it"),
    pytest.param(relu_on_an_input, 0, id="on an input"),
    pytest.param(relu_on_a_sum, 1, id="nobody sees it"),
    pytest.param(relu_out_of_place, 1, id="behind a write"),
]


@pytest.mark.parametrize("door", [symbolic_trace, gw.script, lambda program: gw.trace(program, X)])
@pytest.mark.parametrize(("program", "count"), IN_PLACE)
def test_what_is_left_because_it_writes_is_told(program: Any, count: int, door: Any) -> None:
    gm = door(program)
    result = rewrite(gm, [rule(lambda x: torch.relu(x), lambda x: x.clamp(min=0), name="relu")])
    torch.testing.assert_close(gm(X.clone()), program(X.clone()))
    assert result.count == count
    told = [str(refusal) for refusal in result.refused]
    assert len(told) == 1 - count
    for text in told:
        assert "writes in place to what others may read\n  fix: run graphwright.passes.RemoveInPlace() before" in text


def test_what_a_condition_says_is_told() -> None:
    gm = symbolic_trace(lambda x: torch.relu(x * 2).neg().neg() + torch.relu(x))
    late = rule(lambda x: torch.relu(x), lambda x: x.clamp(min=0), where=lambda m: m.x.op != "call_function" or "late")
    quiet = rule(lambda x: x.neg().neg(), lambda x: x, where=lambda m: False)
    result = rewrite(gm, [late, quiet])
    assert result.count == 1
    assert [(each.rule, each.node, each.reason, each.fix) for each in result.refused] == [(late, "relu", "late", "")]


def test_what_was_left_at_first_is_not_told_once_it_is_rewritten() -> None:
    gm = symbolic_trace(lambda x: torch.relu(x.sin() * 1))
    inner = rule(lambda x: torch.relu(x), lambda x: x.clamp(min=0), where=lambda m: m.x.target == "sin" or "not yet")
    result = rewrite(gm, [inner, rule(lambda x: x * 1, lambda x: x)])
    assert result.count == 2 and result.refused == []


def test_a_value_that_needs_itself_is_refused() -> None:
    gm = symbolic_trace(lambda x: x.sin().exp().cos())
    both = rule(lambda x, y: (x.sin(), y.cos()), lambda x, y: (x.sinh(), y.cosh()))
    code = gm.code
    result = rewrite(gm, [both])
    assert result.count == 0 and gm.code == code
    assert "would need its own value" in result.rules[both].refused[0][1]


def test_a_late_input_is_moved_to_where_it_is_needed() -> None:
    def program(x: torch.Tensor) -> torch.Tensor:
        first = x.sin().exp()
        return first + (x * 2).cos()

    gm = symbolic_trace(program)
    both = rule(lambda x, y: (x.sin(), y.cos()), lambda x, y: (torch.sin(x), torch.cos(y)))
    assert rewrite(gm, [both]).count == 1
    gm.graph.lint()
    assert torch.equal(gm(X), program(X))


def test_random_numbers_are_drawn_in_their_order() -> None:
    def program(x: torch.Tensor) -> torch.Tensor:
        y = F.dropout(x, 0.5)
        z = torch.rand_like(x)
        return y.neg() * z

    gm = symbolic_trace(program)
    result = rewrite(gm, [rule(lambda x: F.dropout(x, 0.5).neg(), lambda x: F.dropout(x.neg(), 0.5))])
    assert result.count == 0
    torch.manual_seed(0)
    expected = program(X)
    torch.manual_seed(0)
    assert torch.equal(gm(X), expected)


# ---- what goes wrong


def test_rules_that_undo_each_other_are_found_out() -> None:
    gm = symbolic_trace(lambda x: torch.relu(x) + 1)
    code = gm.code
    there = rule(lambda x: torch.relu(x), lambda x: torch.clamp(x, 0), name="there")
    back = rule(lambda x: torch.clamp(x, 0), lambda x: torch.relu(x), name="back")
    with pytest.raises(gw.GraphwrightError, match=r"(there and back|back and there) undo each other for ever"):
        rewrite(gm, [there, back])
    assert gm.code == code


def test_a_rule_that_never_ends_is_stopped() -> None:
    gm = symbolic_trace(lambda x: x + 1)
    code = gm.code
    more = rule(lambda x, n=Lit(int): x + n, lambda x, n: x + (n + 1), name="more", recursive=True)
    with pytest.raises(gw.GraphwrightError, match="more was applied 1000 times to what came of it"):
        rewrite(gm, [more])
    assert gm.code == code


def branching(x: torch.Tensor) -> torch.Tensor:
    if x.mean() > 0:
        return torch.relu(x)
    return torch.clamp(x, min=0)


def test_a_replacement_with_branches_is_captured_and_what_it_holds_comes_of_its_rule() -> None:
    gm = symbolic_trace(lambda x: torch.relu(x) + 1)
    result = rewrite(gm, rule(lambda x: torch.relu(x), symbolic_trace(branching)))  # has a relu of its own, in a branch
    assert result.count == 1 and "if x.mean() > 0" in gm.code
    assert torch.equal(gm(X), torch.relu(X) + 1)
    with pytest.raises(gw.GraphwrightError, match=r"if x.mean\(\) > 0[^$]*graphwright.symbolic_trace\(replacement\)"):
        rewrite(symbolic_trace(lambda x: torch.relu(x)), rule(lambda x: torch.relu(x), branching))


def test_a_rule_that_fails_leaves_everything_as_it_was() -> None:
    model = nn.Sequential(nn.Linear(4, 4), nn.ReLU())
    gm = symbolic_trace(model)
    code, names = gm.code, list(gm.state_dict())

    def broken(x: Any, match: Any) -> Any:
        match.install(nn.Linear(4, 4), "more")
        raise RuntimeError("out of ideas")

    rules = [rule(lambda x: mod(nn.Linear)(x), lambda x: x), rule(F.relu, broken)]
    with pytest.raises(
        gw.GraphwrightError, match="replacement of broken failed at _1: RuntimeError: out of ideas"
    ) as info:
        rewrite(gm, rules)
    assert "test_rewriting.py:" in str(info.value)
    assert (gm.code, list(gm.state_dict())) == (code, names)
    assert torch.equal(gm(X), model(X))
    gm.graph.lint()


MISTAKES: list[Any] = [
    (lambda: rule(lambda x: x, lambda x: x), "the pattern gives back its input x"),
    (lambda: rule(lambda x: 3, lambda x: x), "the pattern gives the literal 3"),
    (lambda: rule(3, lambda x: x), "a pattern is a function, a module, a graph or an expression, not 3"),
    (lambda: rule(torch.relu, 3), "a replacement is a function, a module, a graph or an expression, not 3"),
    (lambda: rule(lambda x: x.neg(), lambda x, y: x), "the replacement takes y, which the pattern does not have"),
    (lambda: rule(lambda x: x.neg(), lambda x: x, where=3), "not iterable"),
    (lambda: rule(lambda x: x.neg(), lambda x: x, where=[3]), "a condition is a function of the match, not 3"),
    (lambda: Lit(3), "Lit takes types, and 3 is a value"),
    (lambda: mod(int), "mod takes classes of modules"),
    (lambda: one_of(3), "one_of takes functions, and 3 is none"),
    (lambda: gw.repeat(torch.relu, 3, 2), "nothing is there at least 3 and at most 2 times"),
    (lambda: gw.Var("a b"), "is no name for a value"),
    (lambda: rule(gw.Var("x") + gw.Var("x"), lambda x: x), "two variables of the pattern are called 'x'"),
    (lambda: rewrite(symbolic_trace(lambda x: x.neg()), [3]), "3 is no rule"),
    (lambda: rewrite(symbolic_trace(lambda x: x.neg()), torch.neg), "neg of type object"),
    (lambda: gw.explain(symbolic_trace(torch.nn.ReLU()), rule(torch.relu, torch.neg)), "explain(rule, node)"),
    (lambda: rewrite(torch.neg, rule(torch.relu, torch.neg)), "has no graph"),
    (
        lambda: rewrite(symbolic_trace(lambda x: x.neg()), [rule(lambda x: x.neg(), lambda x: (x, x))]).count
        and rewrite(symbolic_trace(lambda x: x.neg()), [rule(lambda x: (x.neg(),), lambda x: (x, x))]),
        "the replacement gives (one value, one value), and the pattern (one value)",
    ),
]  # fmt: skip


@pytest.mark.parametrize(("mistake", "message"), MISTAKES, ids=[message for _, message in MISTAKES])
def test_mistakes_are_told_where_they_are_made(mistake: Any, message: str) -> None:
    with pytest.raises((gw.GraphwrightError, TypeError)) as info:
        mistake()
    assert message in str(info.value)


# ---- the record


def test_a_rewriting_can_be_read_replayed_and_undone() -> None:
    model = Block()
    gm = symbolic_trace(model)
    other, code = copy.deepcopy(gm), gm.code
    rules = [
        rule(lambda x: F.gelu(x), lambda x: F.silu(x), name="to_silu"),
        rule(lambda x, linear=mod(nn.Linear): linear(x), lambda x, linear: F.linear(x, linear.weight), name="no_bias"),
    ]
    result = rewrite(gm, rules)
    assert result.count == 4
    assert {each.rule.name for each in result.log} == {"to_silu", "no_bias"}
    assert "to_silu" in str(result) and "test_rewriting.py" in str(result.log)
    replay(other, result.log)
    assert other.code == gm.code
    with pytest.raises(gw.GraphwrightError, match="cannot be here"):
        replay(other, result.log)
    assert other.code == gm.code
    result.undo()
    assert gm.code == code
    assert torch.equal(gm(X), model(X))


def test_work_grows_with_the_matches_and_not_with_the_rules() -> None:
    def program(x: torch.Tensor) -> torch.Tensor:
        for _ in range(200):
            x = torch.relu(x) + 1
        return x.neg().neg()

    gm = symbolic_trace(program)
    functions = [getattr(torch, name) for name in ("sin", "cos", "exp", "tan", "tanh", "erf", "floor", "ceil")]
    rules = [rule(lambda x, f=f: f(f(x)), lambda x: x) for f in functions]
    rules.append(rule(lambda x: x.neg().neg(), lambda x: x))
    result = rewrite(gm, rules)
    assert result.count == 1
    assert sum(each.tried for each in result.rules.values()) <= 3


def test_guards_only_look() -> None:
    gm = gw.trace(lambda x: x + 0 if x.dim() == 2 else x, (X,))
    assert gm.guards
    assert rewrite(gm, [rule(lambda x: x + 0, lambda x: x)]).count == 1


def test_the_very_value_may_stand_where_it_is_written_to() -> None:
    def program(x: torch.Tensor) -> torch.Tensor:
        y = x.clone()
        return F.dropout(y, 0.5, False).add_(1) + y

    def pattern(x: torch.Tensor) -> torch.Tensor:
        return F.dropout(x, 0.5, False)

    for same_value in (False, True):
        gm = symbolic_trace(program)
        off = rule(pattern, lambda x: x, same_value=same_value)
        root = next(node for node in gm.graph.nodes if node.name == "dropout")
        assert bool(gw.explain(off, root, gm)) is same_value
        assert rewrite(gm, [off]).count == same_value
        assert torch.equal(gm(X), program(X))


def test_unpacking_only_looks() -> None:
    def program(x: torch.Tensor) -> torch.Tensor:
        first, second = (x + 0).chunk(2)
        return first * second

    gm = gw.trace(program, (torch.ones(4),))
    assert any(node.target is unpack for node in gm.graph.nodes)
    assert rewrite(gm, [rule(lambda x: x + 0, lambda x: x)]).count == 1


def test_what_does_more_in_training_stays_though_nothing_reads_it() -> None:
    class Counted(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.norm, self.drop, self.lin = nn.BatchNorm1d(4), nn.Dropout(), nn.Linear(4, 4)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x + self.lin(self.drop(self.norm(x))).mul(0)

    gm = symbolic_trace(Counted().eval())
    assert rewrite(gm, [rule(lambda x: x.mul(0), lambda x: torch.zeros(()))]).count == 1
    assert [node.name for node in gm.graph.nodes] == ["x", "norm", "drop", "constant", "add", "output"]


def test_dropout_is_not_moved_past_other_dropout() -> None:
    class Dropped(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.one, self.other = nn.Dropout(), nn.Dropout()

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            a = self.one(x)
            b = self.other(x)
            return a.relu() + b

    model = Dropped()
    gm = symbolic_trace(model)
    joined = rule(lambda x: mod(nn.Dropout, "drop")(x).relu(), lambda x: F.dropout(x).relu())
    assert rewrite(gm, [joined]).count == 0
    assert gw.verify(model, gm, [X], modes=("train",)).ok


def test_a_long_history_in_one_place_is_no_trouble() -> None:
    def program(x: torch.Tensor) -> torch.Tensor:
        for _ in range(800):
            x = x + 1
        return x

    gm = symbolic_trace(program)
    joined = rule(
        lambda x, a=Lit(int), b=Lit(int): (x + a) + b, lambda x, a, b: x + (a + b), name="joined", recursive=True
    )
    assert rewrite(gm, joined).count == 799
    assert body(gm) == ["add_1598 = x + 800", "return add_1598"]


def test_writers_are_found_by_way_of_views_and_branches() -> None:
    def program(x: torch.Tensor) -> torch.Tensor:
        y, z, other = x.exp(), x.sin(), x.cos()
        y.narrow(0, 0, 2).view(-1)[:2].add_(1)
        if x.sum() > 0:
            z.mul_(2)
        x.unsqueeze(0).zero_()
        return y + z + other

    gm = gw.trace(program, (torch.ones(3, 3),))
    effects = GraphEffects(gm.graph, Calls(gm))
    nodes = {node.target: node for node in gm.graph.nodes}
    written = {
        name for name in ("exp", "sin", "cos", "narrow", "view", "x", "unsqueeze") if effects.writer_of(nodes[name])
    }
    assert written == {"exp", "sin", "narrow", "view", "x", "unsqueeze"}
    span = nodes["cos"], nodes["unsqueeze"]
    assert (
        effects.writer_of(nodes["exp"], between=span)
        and effects.writer_of(nodes["exp"], between=(span[1],) * 2) is None
    )
    assert effects.writer_of(nodes["x"], between=span) is None and effects.writer_of(nodes["x"])


def test_what_switches_gradients_without_a_block_is_not_crossed() -> None:
    graph = gw.Graph()
    exp = graph.call_method("exp", (graph.placeholder("x"),))
    graph.call_function(torch._C._set_grad_enabled, (False,))
    log = graph.call_method("log", (exp,))
    graph.call_function(torch._C._set_grad_enabled, (True,))
    graph.output((log, graph.call_method("log", (graph.call_method("exp", (log,)),))))
    gm = gw.GraphModule(nn.Module(), graph)
    assert rewrite(gm, rule(lambda x: torch.log(torch.exp(x)), lambda x: x.abs())).count == 1
    assert [node.target for node in gm.graph.nodes if node.op == "call_method"] == ["exp", "log", "abs"]


def test_lists_in_indices_are_no_tuples() -> None:
    def program(x: torch.Tensor) -> Any:
        return torch.relu(x[[0, 1]]), torch.relu(x[0, 1]), torch.relu(x[[1, 1]]), torch.relu(x[1])

    x = torch.randn(3, 3)
    for find, put, count in (
        (lambda x: torch.relu(x[0, 1]), lambda x: torch.sigmoid(x[0, 1]), 1),
        (lambda x: torch.relu(x[[0, 1]]), lambda x: torch.sigmoid(x[[0, 1]]), 1),
        (lambda x, i=Lit(int): torch.relu(x[i]), lambda x, i: torch.sigmoid(x[i]), 1),
        (lambda x, i: torch.relu(x[i]), lambda x, i: torch.sigmoid(x[i]), 4),
    ):
        gm = gw.trace(program, (x,))
        assert rewrite(gm, rule(find, put)).count == count
        pairs = zip(gm(x), program(x), strict=True)
        assert sum(not torch.equal(one, other) for one, other in pairs) == count
        assert [one.shape for one in gm(x)] == [other.shape for other in program(x)]
