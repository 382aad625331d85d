"""What is here because torch.fx and torch.jit have it: their import paths, and tools of theirs, on the other rooms.

`paths.py` (read it first) is one table: for every module path that tools written for torch.fx import from, the names
found there and the file or room each comes from. Nothing outside of this room imports from it, but the package itself.

    finder.py      modules made from the table, when somebody imports them
    paths.py       which names are found under which paths
    torch_ao/      torch.ao's quantization by graphs
    torch_jit.py   `trace` and `script` with torch.jit's options
    stability.py   torch.fx's mark for what keeps its meaning
    partitioning/  parts for backends, by torch.fx's tools
    tools/         torch.fx's ways to run passes, and passes of its own
    tracing/       torch.fx's further tracers and types
"""

from graphwright.compat.finder import install, load, show_paths
from graphwright.compat.paths import FILES, FOLDERS, PATHS, PICKLED

__all__ = ["FILES", "FOLDERS", "PATHS", "PICKLED", "install", "load", "show_paths"]

# Sub-rooms and files, the top floor first: a file imports from its own floor and from those after it.
FLOORS = (
    "finder",
    "paths",
    "torch_ao",
    "torch_jit",
    "stability",
    "partitioning",
    "tools",
    "tracing",
)
