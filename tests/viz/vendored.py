"""Fetch a release of the library that lays out pages, by npm: `python -m tests.viz.vendored 3.1.3`.

What is fetched is checked against the hash that the registry says, by npm, and the file that is kept against the one
noted in `package.json`, by a test.
"""

from __future__ import annotations

import hashlib
import json
import re
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path

import graphwright

PACKAGE = "@dagrejs/dagre"
FOLDER = Path(graphwright.__file__).parent / "viz/vendor/dagre"
SCRIPT, LICENSE, NOTE = FOLDER / "dagre.min.js", FOLDER / "LICENSE", FOLDER / "package.json"


def update(version: str) -> None:
    """Write the files of a release."""
    with tempfile.TemporaryDirectory() as folder:
        command = ["npm", "pack", "--json", f"{PACKAGE}@{version}", "--pack-destination", folder]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
        (archive,) = Path(folder).glob("*.tgz")
        with tarfile.open(archive) as files:
            SCRIPT.write_text(without_pointers(_read(files, "package/dist/dagre.min.js")))
            LICENSE.write_text(_read(files, "package/LICENSE"))
    NOTE.write_text(json.dumps({"name": PACKAGE, "version": version, "sha256": sha256()}, indent=2) + "\n")
    readme = FOLDER / "README.md"
    readme.write_text(re.sub(r"\d+\.\d+\.\d+", version, readme.read_text(), count=1))


def without_pointers(text: str) -> str:
    """A script without the lines that name other files, which a browser would look for."""
    return "".join(
        line for line in text.splitlines(keepends=True) if not line.startswith(("//# source", "/*! For license"))
    )


def sha256() -> str:
    """The hash of the script that is kept."""
    return hashlib.sha256(SCRIPT.read_bytes()).hexdigest()


def _read(files: tarfile.TarFile, name: str) -> str:
    found = files.extractfile(name)
    assert found is not None, name
    return found.read().decode()


if __name__ == "__main__":
    update(*sys.argv[1:])
