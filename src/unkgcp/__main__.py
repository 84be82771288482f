"""`python -m unkgcp`: the command line without an installed script."""

from __future__ import annotations

from unkgcp.cli import main

if __name__ == "__main__":
    main()
