"""``python -m bubbleproof.cli``."""

import sys

from bubbleproof.cli import main

if __name__ == "__main__":
    sys.exit(main())
