"""What is taken for granted of modules, in words."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from graphwright.runtime.graph_facts import Facts


def said_of_modules(facts: Mapping[str, Facts]) -> str:
    """Say what is taken for granted of modules, in one sentence; of many modules, what most of it is.

    >>> said_of_modules({"": {"values": {"heads": 4}}, "layers": {"holds": {"_modules": ["0", "1"]}, "hooks": {}}})
    'self.heads is 4; layers holds 0, 1; the code and hooks of 1 module'
    """
    alike: dict[str, list[str]] = {}
    for path, of_one in facts.items():
        for name, value in of_one.get("values", {}).items():
            alike.setdefault(f"{name} is {shown(value)}", []).append(dotted(path, name))
        for fact, text in OF_TENSORS.items():
            for name, was in of_one.get(f"{fact}s", {}).items():
                owner, _, last = dotted(path, name).rpartition(".")
                alike.setdefault(f"{last} is {text} {was}", []).append(f"{owner}.{last}")
        for owner, held in of_one.get("objects", {}).items():
            for name, value in held["values"].items():
                alike.setdefault(f"{name} is {shown(value)}", []).append(dotted(path, f"{owner}.{name}"))
    said = [
        f"{'self.' if len(places) > 1 else places[0].rpartition('.')[0] + '.'}{text}"
        + (f" in {len(places)} modules" if len(places) > 1 else "")
        for text, places in alike.items()
    ]
    holds = [
        f"{path or 'self'} holds {', '.join(names) or 'nothing'}"
        for path, of_one in facts.items()
        for names in of_one.get("holds", {}).values()
    ]
    said = [*_few(said), *_few(holds)]
    called = sum("hooks" in of_one for of_one in facts.values())
    said += [f"the code and hooks of {called} module{'s' * (called > 1)}"] if called else []
    return "; ".join(said) or f"the class of {len(facts)} module{'s' * (len(facts) > 1)}"


def any_of(facts: Iterable[Any]) -> str:
    """Say that something is one of some facts: those that a program is right for.

    >>> any_of(["torch.float64", "torch.float32"])
    'torch.float32 or torch.float64'
    """
    return _OR.join(sorted(map(str, facts)))


def dtypes_in(said: str) -> list[str]:
    """The dtypes that `any_of` has said.

    >>> dtypes_in("torch.float32 or torch.float64")
    ['torch.float32', 'torch.float64']
    """
    return said.split(_OR)


_OR = " or "


def _few(texts: list[str]) -> list[str]:
    return texts if len(texts) <= _MOST else [*texts[:_MOST], f"{len(texts) - _MOST} more"]


_MOST = 8  # texts of one kind that a sentence has


def dotted(path: str, name: str) -> str:
    return f"self.{path}.{name}" if path else f"self.{name}"


def shown(value: Any) -> str:
    text = _text_of(value)
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}..."


def _text_of(value: Any) -> str:
    """The text of what `spelled` gives."""
    told = [*value.values()] if isinstance(value, dict) and list(value) in NAMED else [None]
    if type(told[0]) is str:
        return told[0]
    if type(told[0]) is list and told[0] and list(value) == ["tensor"]:
        return str(told[0][0])
    if type(told[0]) is list and len(told[0]) == 2 and list(value) == ["container"]:
        return f"{told[0][0].rpartition('.')[2]}({_text_of(told[0][1])})"
    if isinstance(value, dict) and list(value) == ["partial"]:
        function, args, keywords = value["partial"]
        named = [f"{name}={_text_of(item)}" for name, item in keywords.items()]
        return f"partial({', '.join([_text_of(function), *map(_text_of, args), *named])})"
    if isinstance(value, dict):
        return f"{{{', '.join(f'{key!r}: {_text_of(item)}' for key, item in value.items())}}}"
    if type(value) is tuple:
        return f"({', '.join(map(_text_of, value))}{',' * (len(value) == 1)})"
    return f"[{', '.join(map(_text_of, value))}]" if type(value) is list else repr(value)


def shown_now(was: Any, now: Any) -> str:
    """What a value is now, as it differs from what it was."""
    text = shown(now)
    return text if text != shown(was) else f"another {type(now).__name__}" if type(now) is not type(was) else "another"


_LONGEST = 80
OF_TENSORS = {"dtype": "of", "device": "on", "shape": "of"}
NAMED = (["function"], ["member"], ["bytes"], ["value"], ["package"], ["tensor"], ["container"])
