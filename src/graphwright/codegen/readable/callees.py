"""Called modules: written as look-ups where they are called, run as variables that are assigned once, at the start.

    self.features[0][1](x) * self.blocks[0].scale        what is shown
    self_features_0__1_(x) * Self_blocks_0_.scale        what runs

Both texts are made from one, in which a mark stands for each character that no name may have: they are the same line
for line and column for column, so that what Python says of the one that runs is right of the one that is shown.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

_MARK, _READ = "\x01", "\x02"  # are in no source outside of comments and literals, and these are written with escapes
_OTHER = re.compile(r"\W")


class Callees:
    """The modules that one function calls, or of which it reads attributes, by how their look-up is written.

    >>> callees = Callees()
    >>> text = f"y = {callees.mark('layers.0', 'self.layers[0]')}(x)"
    >>> callees.shown(text), callees.run(text)
    ('y = self.layers[0](x)', ('y = self_layers_0_(x)', {'self_layers_0_': 'layers.0'}, {}))
    """

    def __init__(self) -> None:
        self._texts: dict[str, str] = {}  # by marked text
        self._paths: dict[str, str] = {}

    def mark(self, path: str, text: str, is_read: bool = False) -> str:
        """Write the look-up of a module so that it can be shown and run; `text` is what is shown.

        The module is called, or, with `is_read`, asked for an attribute.
        """
        marked = _OTHER.sub(_MARK, text)
        if is_read:
            marked = marked.replace(_MARK, _READ, 1)
        if self._texts.setdefault(marked, text) != text:  # `a.b["c"]` and `a["b"].c`
            return text
        self._paths[marked] = path
        return marked

    def shown(self, text: str) -> str:
        """The text to read: each module is looked up where it is used."""
        return _written(text, self._texts)

    def run(self, text: str) -> tuple[str, dict[str, str], dict[str, str]]:
        """The text that runs, and its variables, each with the path of its module: for calls, and for reads.

        A module whose variable would have a name that the text has already is looked up where it is used.
        """
        taken = _words(text, self._paths)
        called: dict[str, str] = {}
        read: dict[str, str] = {}
        texts: dict[str, str] = {}
        for marked, path in self._paths.items():
            name = _OTHER.sub("_", marked)
            if _READ in marked:
                name = name[0].upper() + name[1:]
            if name in taken or name in called or name in read:
                texts[marked] = self._texts[marked]
            else:
                (read if _READ in marked else called)[name] = path
                if _READ in marked:
                    texts[marked] = name
        return _written(text, texts).replace(_MARK, "_"), called, read


def _written(text: str, texts: dict[str, str]) -> str:
    for start in _starts(texts):  # which the search for them begins with
        pattern = rf"{start}(?<![\w{_MARK}{_READ}]{start})[\w{_MARK}]*"  # not inside of another: a path may say `self`
        text = re.sub(pattern, lambda found: texts.get(found[0], found[0]), text)
    return text


def _starts(marked: Iterable[str]) -> set[str]:
    """What marked texts begin with, the first mark included: `self` and a mark, mostly."""
    return {_START.match(each)[0] for each in marked}  # type: ignore[index]


_START = re.compile(rf"\w*[{_MARK}{_READ}]")


def _words(text: str, marked: Iterable[str]) -> set[str]:
    """The words of a text, if any of them begins as the names of variables do."""
    starts = {f"{start[:-1]}_" for start in _starts(marked)}
    starts |= {f"{start[0].upper()}{start[1:]}" for start in starts}
    return set(re.findall(r"\w+", text)) if any(start in text for start in starts) else set()
