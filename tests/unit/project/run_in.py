"""Start the runner's command, and print whether it sees a terminal. For tests of tests/run.py."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

import run  # noqa: E402

run.command(sys.executable, "-c", "import sys; print('terminal:', sys.stdout.isatty())", venv=Path(sys.prefix))
