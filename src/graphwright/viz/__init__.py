"""Graph -> a picture of it.

Captured modules come in; what goes out are pages that show them, and drawings in the language of Graphviz. Read
viewing.py first.
"""

from graphwright.viz.graph_drawer import HAS_PYDOT, FxGraphDrawer
from graphwright.viz.viewing import view

__all__ = ["HAS_PYDOT", "FxGraphDrawer", "view"]
