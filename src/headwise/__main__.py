"""`python -m headwise` is the `headwise` command."""

from __future__ import annotations

from headwise.cli import main

if __name__ == "__main__":
    raise SystemExit(main())
