"""`python -m graphwright` is the command `graphwright`."""

import sys

from graphwright.cli import main

if __name__ == "__main__":
    sys.exit(main())
