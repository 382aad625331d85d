"""Generated code with its repetitions folded: what thirty equal layers do is shown once."""

from __future__ import annotations

import re

_SUFFIX = re.compile(r"(?<=\w)_\d+\b")  # x_3 is called like x
# layers.3, self.layers[3](x), modules["3"].linear; what a heading ends with
_INDEX = re.compile(r"""(?<=[\w\]])\.\d+\b|\["?\d+"?\](?=[.(\[])|, [\w.]*\d[\w.]*$""")
_LONGEST = 400  # lines of what is repeated


def folded(code: str, at_least: int = 60) -> str:
    """Leave out of long code what is like the lines before it: all but names with numbers, and places in lists.

    >>> lines = [line for i in range(40) for line in (f"    # 5: layer", f"    x_{i} = self.layers[{i}](x)", "")]
    >>> print(folded("\\n".join(["def forward(self, x):", *lines, "    return x_39"])))
    def forward(self, x):
        # 5: layer
        x_0 = self.layers[0](x)
    <BLANKLINE>
        # ... 39 more times lines like these 3
        return x_39
    """
    lines = code.split("\n")
    if len(lines) < at_least:
        return code
    plain = [_INDEX.sub("", _SUFFIX.sub("", line)) for line in lines]
    places: dict[str, list[int]] = {}
    for number, line in enumerate(plain):
        places.setdefault(line, []).append(number)
    shown: list[str] = []
    number = 0
    while number < len(lines):
        length, times = _repeated(plain, places[plain[number]], number)
        shown += lines[number : number + max(length, 1)]
        if times > 1:
            indent = " " * (len(lines[number]) - len(lines[number].lstrip()))
            shown.append(f"{indent or '    '}# ... {times - 1} more times lines like these {length}")
        number += max(length * times, 1)
    return "\n".join(shown)


def _repeated(lines: list[str], places: list[int], start: int) -> tuple[int, int]:
    """How many lines from a start on are repeated right after them, and how often; (1, 1): not at all."""
    best, saved = (1, 1), 0
    for place in places:
        length = place - start
        if not 0 < length <= _LONGEST:
            continue
        times, block = 1, lines[start : start + length]
        while lines[start + times * length : start + (times + 1) * length] == block:
            times += 1
        if times > 1 and (times - 1) * length > saved and length > 1:
            best, saved = (length, times), (times - 1) * length
    return best
