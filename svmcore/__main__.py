"""``python -m svmcore`` is the command line."""

import sys

from svmcore.cli import main

if __name__ == "__main__":
    sys.exit(main())
