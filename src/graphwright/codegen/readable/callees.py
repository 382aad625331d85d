"""Called modules: written as look-ups where they are called, run as variables that are assigned once, at the start.

    self.features[0][1](x)        what is shown
    self_features_0__1_(x)        what runs

Both texts are made from one, in which a mark stands for each character that no name may have: they are the same line
for line and column for column, so that what Python says of the one that runs is right of the one that is shown.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

__all__ = ["Callees"]

_MARK = "\x01"  # is in no source outside of comments and literals, and literals are written with escapes
_OTHER = re.compile(r"\W")


class Callees:
    """The modules that one function calls, by how their look-up is written.

    >>> callees = Callees()
    >>> text = f"y = {callees.mark('layers.0', 'self.layers[0]')}(x)"
    >>> callees.shown(text), callees.run(text)
    ('y = self.layers[0](x)', ('y = self_layers_0_(x)', {'self_layers_0_': 'layers.0'}))
    """

    def __init__(self) -> None:
        self._texts: dict[str, str] = {}  # by marked text
        self._paths: dict[str, str] = {}

    def mark(self, path: str, text: str) -> str:
        """Write the look-up of a module so that it can be shown and run; `text` is what is shown."""
        marked = _OTHER.sub(_MARK, text)
        if self._texts.setdefault(marked, text) != text:  # `a.b["c"]` and `a["b"].c`
            return text
        self._paths[marked] = path
        return marked

    def shown(self, text: str) -> str:
        """The text to read: each module is looked up where it is called."""
        return _written(text, self._texts)

    def run(self, text: str) -> tuple[str, dict[str, str]]:
        """The text that runs, and the variables that it reads, each with the path of its module.

        A module whose variable would have a name that the text has already is looked up where it is called.
        """
        names: dict[str, str] = {}
        taken = _words(text, self._paths)
        kept: dict[str, str] = {}
        for marked, path in self._paths.items():
            name = marked.replace(_MARK, "_")
            if name in taken or name in names:
                kept[marked] = self._texts[marked]
            else:
                names[name] = path
        return _written(text, kept).replace(_MARK, "_"), names


def _written(text: str, texts: dict[str, str]) -> str:
    for start in _starts(texts):  # which the search for them begins with
        pattern = rf"{start}{_MARK}[\w{_MARK}]*"
        text = re.sub(pattern, lambda found: texts.get(found[0], found[0]), text)
    return text


def _starts(marked: Iterable[str]) -> set[str]:
    """The words that marked texts begin with: `self`, mostly."""
    return {each.partition(_MARK)[0] for each in marked}


def _words(text: str, marked: Iterable[str]) -> set[str]:
    """The words of a text, if any of them begins as the names of variables do."""
    return set(re.findall(r"\w+", text)) if any(f"{start}_" in text for start in _starts(marked)) else set()
