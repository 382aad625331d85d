"""`graphwright.config`: the few settings of the library, each with its environment variable."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

__all__ = ["Config", "config"]


class Config:
    """The settings of this process. What is not set here is read from the environment when it is asked for.

    progress: whether what takes longer than a second shows a bar; None, which is the default, in terminals and
        notebooks only. GRAPHWRIGHT_PROGRESS: 0 or 1.
    cache_folder: where `optimize_for_inference(keep_decisions=True)` notes what it measured; `~/.cache/graphwright` by
        default. GRAPHWRIGHT_CACHE: a path.
    copy_layers: whether `trace` copies the part of the graph of a layer that is called like one it has captured. What
        that takes for granted stands in docs/scale.md. True by default. GRAPHWRIGHT_COPY_LAYERS: 0 or 1.

    >>> with config.set(progress=False):
    ...     config.progress
    False
    """

    __slots__ = ("_set",)

    def __init__(self) -> None:
        self._set: dict[str, Any] = {}

    @property
    def progress(self) -> bool | None:
        """Whether what takes longer than a second shows a bar; None: in terminals and notebooks."""
        if "progress" in self._set:
            return self._set["progress"]  # type: ignore[no-any-return]
        return {"0": False, "1": True}.get(os.environ.get("GRAPHWRIGHT_PROGRESS", ""))

    @progress.setter
    def progress(self, value: bool | None) -> None:
        if value not in (None, False, True):
            raise ValueError(f"progress is None, False or True, not {value!r}")
        self._set["progress"] = value

    @property
    def cache_folder(self) -> Path | None:
        """Where is noted what was measured on this machine; None for a user without a home."""
        found = self._set.get("cache_folder") or os.environ.get("GRAPHWRIGHT_CACHE")
        try:
            return Path(found) if found else Path.home() / ".cache" / "graphwright"
        except RuntimeError:
            return None

    @cache_folder.setter
    def cache_folder(self, value: str | os.PathLike[str] | None) -> None:
        self._set["cache_folder"] = value

    @property
    def copy_layers(self) -> bool:
        """Whether layers that are called like one before are copied in a capture."""
        return bool(self._set.get("copy_layers", os.environ.get("GRAPHWRIGHT_COPY_LAYERS") != "0"))

    @copy_layers.setter
    def copy_layers(self, value: bool) -> None:
        if value not in (False, True):
            raise ValueError(f"copy_layers is False or True, not {value!r}")
        self._set["copy_layers"] = value

    @contextmanager
    def set(self, **settings: Any) -> Iterator[None]:
        """Have settings be others inside of a `with` block. Raises AttributeError for what is none."""
        before = dict(self._set)
        try:
            for name, value in settings.items():
                setattr(self, name, value)
            yield
        finally:
            self._set = before

    def __repr__(self) -> str:
        return (
            f"Config(progress={self.progress!r}, cache_folder={str(self.cache_folder)!r}, "
            f"copy_layers={self.copy_layers!r})"
        )


config = Config()
