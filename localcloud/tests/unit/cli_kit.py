"""What the tests of the command line share."""

from __future__ import annotations

import pytest

from localcloud import cli


def refused(capsys: pytest.CaptureFixture[str], *words: str) -> str:
    """The sentence of argparse, or of our own, that ends a command that cannot be."""
    try:
        assert cli.main(words) == 2
    except SystemExit as ended:
        assert ended.code == 2
    printed = capsys.readouterr()
    assert printed.out == ""
    return printed.err.strip().splitlines()[-1]
