"""Where the command begins; also `python3 -m deeplearning`, for where it is not installed."""

from __future__ import annotations

import os
import sys

# An isolated interpreter does not look where the program is.
sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))

from deeplearning.cli import main  # noqa: E402

sys.exit(main(sys.argv[1:]))
