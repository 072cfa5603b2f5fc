"""`python -m parax …`: the same as `parax …`, for where the scripts are not on the path."""

import sys

from .compiler.cli import main

if __name__ == "__main__":
    sys.exit(main())
