"""Graph -> a picture of it.

Captured modules come in; what goes out are drawings in the language of Graphviz. Read graph_drawer.py first.
"""

from graphwright.viz.graph_drawer import HAS_PYDOT, FxGraphDrawer

__all__ = ["HAS_PYDOT", "FxGraphDrawer"]
