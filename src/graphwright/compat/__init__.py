"""torch.fx's import paths, on the rooms of this library.

`paths.py` (read it first) is one table: for every module path that tools written for torch.fx import from, the names
found there and the room each comes from, and three more of paths that lead to one file. `finder.py` makes modules of
them when they are imported. `torch_jit.py` has `trace` and `script` with torch.jit's options. Nothing else is
implemented here and no other room knows these paths.
"""

from graphwright.compat.finder import install, load
from graphwright.compat.paths import FILES, FOLDERS, PATHS, PICKLED

__all__ = ["FILES", "FOLDERS", "PATHS", "PICKLED", "install", "load"]
