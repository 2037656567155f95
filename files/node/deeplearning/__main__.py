"""`python3 -m deeplearning`, for where the command is not installed."""

from __future__ import annotations

import sys

from deeplearning.cli import main

sys.exit(main(sys.argv[1:]))
