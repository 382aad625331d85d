"""Modules of captured programs as modules again: graphs inside graphs, one for each distinct module."""

from graphwright.hierarchy.modules import unflatten

__all__ = ["unflatten"]
