"""The page in a browser: what is clicked, searched, folded and stepped through, and that it says nothing is wrong."""

from __future__ import annotations

import copy
import operator
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from tests.viz.browser import Browser, browsing, find_browser
from torch import Tensor, nn

import graphwright
from graphwright import Graph, GraphModule, rewrite, rule, trace, view

pytestmark = pytest.mark.skipif(
    find_browser() is None, reason="no browser: `apt-get install chromium`, or name one by CHROMIUM="
)


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with browsing() as found:
        yield found


@pytest.fixture(autouse=True)
def _no_complaints(browser: Browser) -> Iterator[None]:
    browser.complaints.clear()
    browser.requests.clear()
    yield
    assert browser.complaints == []
    assert all(url.startswith("file:") for url in browser.requests), browser.requests


class Block(nn.Module):
    def __init__(self, width: int = 8) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.up = nn.Linear(width, 2 * width)
        self.down = nn.Linear(2 * width, width)

    def forward(self, x: Tensor) -> Tensor:
        return x + self.down(torch.relu(self.up(self.norm(x))))


class Blocks(nn.Module):
    def __init__(self, count: int) -> None:
        super().__init__()
        self.blocks = nn.Sequential(*[Block() for _ in range(count)])
        self.head = nn.Linear(8, 2)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.blocks(x))


class Loop(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        while x.sum() < 100:
            if x.max() > 3:
                x = x * 2
            else:
                x = x + 1
        return x


def page_of(gm: nn.Module, folder: Path, *args: Any, **options: Any) -> Path:
    given = {"args": args} if args else {}
    return view(gm, folder / "graph.html", **given, **options)


def box(name: str) -> str:
    return f'[data-box="{name}"]'


def boxes(browser: Browser) -> list[str]:
    found: list[str] = browser.run("[...document.querySelectorAll('[data-box]')].map((each) => each.dataset.box)")
    return found


def text(browser: Browser, selector: str) -> str:
    return str(browser.run(f"document.querySelector({selector!r}).innerText"))


def test_clicks_folds_and_searches(browser: Browser, tmp_path: Path) -> None:
    """The one test that is not slow: a page opens, tells, folds and finds."""
    x = torch.ones(3, 8)
    browser.open(page_of(trace(Blocks(2).eval(), (x,)), tmp_path, x))
    block = ">blocks#1>blocks.1#1"
    assert block in boxes(browser)

    browser.press("f")
    browser.click(box("head"))
    details = text(browser, "#details")
    assert (
        "3×2 float32" in details
        and "return self.head(add_1)" in details
        and "return self.head(self.blocks(x))" in details
    )
    assert "96 FLOP" in details and "in_features=8" in details and "test_page.py" in details

    browser.click(f"{box(block)} [data-toggle]")
    folded = boxes(browser)
    browser.click(f"{box(block)} [data-toggle]")
    unfolded = boxes(browser)
    assert abs(len(folded) - len(unfolded)) == 5  # the nodes in a block

    browser.click("#query")
    browser.write("layernorm")
    assert browser.run("document.querySelectorAll('#found li').length") == 2
    browser.press("Enter")
    assert browser.run("document.querySelector('.selected .title').textContent") == "norm"
    assert "LayerNorm" in text(browser, "#details")


HOSTILE = "</script><script>document.title = 'owned'</script><img src=x onerror=\"document.title='owned'\">"


@pytest.mark.slow
def test_what_a_program_says_is_only_text(browser: Browser, tmp_path: Path) -> None:
    graph = Graph()
    x = graph.placeholder("x")
    call = graph.call_method(HOSTILE, (x, HOSTILE))
    call.meta["nn_module_stack"] = {"a": (HOSTILE, HOSTILE)}
    graph.output(call)
    module = GraphModule(nn.Module(), graph)
    page = view(module, tmp_path / "graph.html", title=HOSTILE, times={call.name: 1.0})
    browser.open(page)
    browser.run("1")
    for key in ("u", "ArrowDown", "ArrowDown", "ArrowDown"):
        browser.press(key)
    browser.click("[data-tab=code]")
    browser.click("#query")
    browser.write("script")
    assert browser.run("document.title") == HOSTILE
    assert browser.run("document.querySelectorAll('img').length") == 0
    assert browser.run("document.querySelectorAll('script').length") == 2  # the page's own


@pytest.mark.slow
def test_bodies_are_boxes_in_boxes(browser: Browser, tmp_path: Path) -> None:
    x = torch.ones(2, 2)
    browser.open(page_of(trace(Loop(), (x,)), tmp_path, x))
    shown = boxes(browser)
    outer = next(name for name in shown if name.endswith("/body]"))
    assert not {"input", "output"} & set(text(browser, "#details .dearest").split())
    assert outer.replace("/body]", "/test]") in shown
    browser.press("u")
    inside = [name for name in boxes(browser) if name.startswith(f"{outer[:-1]}/")]
    assert [name.rpartition("/")[2] for name in inside if name.endswith("]")] == ["true]", "false]"], inside
    inner = next(name for name in boxes(browser) if "true/" in name and name.endswith("x_1"))
    browser.run(f"document.querySelector({box(inner)!r}).dispatchEvent(new MouseEvent('click', {{bubbles: true}}))")
    assert "x = x * 2" in text(browser, "#details")


class Twice(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.part = nn.Sequential(nn.Linear(4, 4), nn.ReLU())

    def forward(self, x: Tensor, y: Tensor) -> Tensor:
        return self.part(self.part(x)) + self.part(y)


@pytest.mark.slow
def test_each_call_of_a_module_is_a_box(browser: Browser, tmp_path: Path) -> None:
    browser.open(page_of(trace(Twice(), (torch.ones(2, 4), torch.ones(2, 4))), tmp_path))
    assert {name for name in boxes(browser) if name.startswith(">")} == {f">part#{i}" for i in (1, 2, 3)}


@pytest.mark.slow
def test_heat_follows_what_is_measured(browser: Browser, tmp_path: Path) -> None:
    model = nn.Sequential(nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 64))
    browser.open(page_of(trace(model, (torch.ones(1, 8),)), tmp_path, torch.ones(1, 8)))
    hot = "Number(getComputedStyle(document.querySelector('{}')).getPropertyValue('--heat').replace('%', ''))"
    names = [name for name in boxes(browser) if browser.run(f"document.querySelector({box(name)!r}).matches('.layer')")]
    for measure in ("flops", "written", "seconds"):
        browser.click(f"[data-heat={measure}]")
        heats = [browser.run(hot.format(box(name).replace("'", ""))) for name in names]
        assert max(heats) == 100 or measure == "seconds"
        assert measure == "seconds" or heats[0] < heats[1]
    assert not browser.run("document.querySelector('#legend').hidden")
    costly = "[...document.querySelectorAll('#details .dearest [data-go]')].map((each) => each.firstChild.data)"
    assert sorted(browser.run(costly)) == ["0", "1", "2"]  # modules by their paths, as in the picture

    browser.open(page_of(trace(model, (torch.ones(1, 8),)), tmp_path))
    assert browser.run("document.querySelector('[data-heat=flops]').disabled")


@pytest.mark.slow
def test_the_flame_is_as_wide_as_what_is_measured(browser: Browser, tmp_path: Path) -> None:
    model = Blocks(3)
    browser.open(page_of(trace(model, (torch.ones(1, 8),)), tmp_path, torch.ones(1, 8)))
    browser.click("[data-heat=flops]")
    browser.click("[data-tab=flame]")
    wide = "Object.fromEntries([...document.querySelectorAll('#flame .bar')].map(e => [e.title, e.offsetWidth]))"
    widths = {title.partition(":")[0]: width for title, width in browser.run(wide).items()}
    assert widths["up"] > 0.4 * widths["0"] > 0
    assert abs(widths["0"] - widths["1"]) <= 1
    assert widths["head"] < 0.1 * widths["blocks"]
    browser.run("[...document.querySelectorAll('#flame .bar')].find(e => e.textContent === '1').click()")
    shown = {title.partition(":")[0] for title in browser.run(wide)}
    assert {"1", "up", "down"} <= shown
    assert "head" not in shown

    browser.open(page_of(trace(model, (torch.ones(1, 8),)), tmp_path))
    browser.click("[data-tab=flame]")
    assert "Give args" in browser.run("document.querySelector('#flame').textContent")


@pytest.mark.slow
def test_before_and_after_stand_side_by_side(browser: Browser, tmp_path: Path) -> None:
    before = graphwright.symbolic_trace(lambda x: (x * 1).relu().exp())
    after = copy.deepcopy(before)
    rewrite(after, [rule(lambda x: x * 1, lambda x: x), rule(lambda x: x.exp(), lambda x: x.neg())])
    browser.open(page_of(before, tmp_path, compare=after))
    marked = "[...document.querySelectorAll('{}')].map((each) => each.dataset.box)"
    assert browser.run(marked.format(".canvas .removed")) == ["mul", "exp"]
    assert browser.run(marked.format(".canvas .added")) == ["neg"]
    assert browser.run(marked.format(".pane:last-child .canvas .changed")) == ["relu", "output"]
    browser.press("n")
    assert browser.run("document.querySelector('.pane.active .selected').dataset.box") == "mul"


@pytest.mark.slow
def test_a_rewriting_is_stepped_through(browser: Browser, tmp_path: Path) -> None:
    gm = graphwright.symbolic_trace(lambda x: (x + 0 + 0).relu())
    before = copy.deepcopy(gm)
    log = rewrite(gm, [rule(lambda x: x + 0, lambda x: x, name="drop_zero")]).log
    browser.open(page_of(before, tmp_path, log=log))
    assert "1 of 2" in text(browser, "#stepper") and "drop_zero" in text(browser, "#stepper")
    count = "document.querySelectorAll('.pane:last-child [data-box]').length"
    assert browser.run(count) == 4
    browser.press("]")
    assert browser.run(count) == 3
    assert browser.run("document.querySelector('.canvas .removed').dataset.box") == "add_1"


@pytest.mark.slow
def test_the_plane_moves_and_scales(browser: Browser, tmp_path: Path) -> None:
    browser.open(page_of(trace(Blocks(2).eval(), (torch.ones(3, 8),)), tmp_path))
    where = "document.querySelector('[data-box=head]').getBoundingClientRect()"
    read = f"(() => {{ const {{ x, y, width }} = {where}; return [x, y, width]; }})()"
    x, y, width = browser.run(read)
    browser.drag((100, 300), (160, 340))
    assert browser.run(read) == pytest.approx([x + 60, y + 40, width])
    browser.wheel(300, 300, -300)
    assert browser.run(read)[2] > width * 1.3
    browser.press("-")
    browser.press("t")
    assert browser.run("document.documentElement.dataset.theme") == "dark"
    browser.press("?")
    assert browser.run("document.querySelector('#keys').open")


def chain(nodes: int) -> GraphModule:
    graph = Graph()
    value = graph.placeholder("x")
    for _ in range(nodes - 2):
        value = graph.call_function(operator.add, (value, 1))
    graph.output(value)
    return GraphModule(nn.Module(), graph)


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["in modules", "without modules"])
def test_ten_thousand_nodes_open_folded(browser: Browser, tmp_path: Path, kind: str) -> None:
    gm = chain(10_000) if kind == "without modules" else trace(Blocks(2000).eval(), (torch.ones(3, 8),))
    assert len(gm.graph.nodes) >= 10_000
    browser.open(page_of(gm, tmp_path))
    assert 3 <= len(boxes(browser)) <= 250
    last = [node.name for node in gm.graph.nodes][-2]
    browser.click("#query")
    browser.write(last)
    browser.press("Enter")
    assert last in boxes(browser)
    assert len(boxes(browser)) <= 500  # and the way there is opened alone
