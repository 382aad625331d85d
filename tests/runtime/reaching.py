"""Functions of a package that somebody allows: what they reach, by every way that code has to it."""

from __future__ import annotations

import functools
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch


def harmless(x: torch.Tensor) -> torch.Tensor:
    return helper(x) * 2


def helper(x: torch.Tensor) -> torch.Tensor:
    return x.relu()


def opens(x: Any) -> Any:
    with open(x) as file:
        return file.read()


def by_another(x: Any) -> Any:
    return opens(x)


def by_a_module(x: Any) -> Any:
    return os.listdir(x)


def by_a_path(x: Any) -> Any:
    return Path(x).read_text()


def by_an_import(x: Any) -> Any:
    import shutil

    return shutil.copy(x, x)


def by_torch(x: Any) -> Any:
    return torch.load(x)


def by_an_operator(x: Any) -> Any:
    return torch.ops.image.read_file(x)


def builds(x: Any) -> Any:
    return eval(x)


def within(x: Any) -> Any:
    def inner() -> Any:
        return open(x)

    return inner()


def _wrapped(function: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(function)
    def call(*args: Any) -> Any:
        return function(*args)

    return call


@_wrapped
def decorated(x: Any) -> Any:
    return open(x)


@functools.cache
def cached(x: Any) -> Any:
    return open(x)


class Reader:
    def __init__(self, x: Any) -> None:
        self.text = open(x).read()


class Heir(Reader):
    pass


def makes(x: Any) -> Any:
    return Reader(x)


class Loads:
    @classmethod
    def loaded(cls, x: Any) -> Any:
        return cls._read(x)

    @classmethod
    def _read(cls, x: Any) -> Any:
        return open(x)
