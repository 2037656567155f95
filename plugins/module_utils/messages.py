# Copyright: (c) 2026, the deeplearning.aws contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)

"""Texts that many messages have in common."""

from __future__ import annotations

from collections.abc import Sequence


def join_problems(problems: Sequence[str], title: str) -> str:
    """Return one problem as it is, and several as a list below the title, such as "{} settings are wrong:"."""
    unique = list(dict.fromkeys(problems))
    if len(unique) == 1:
        return unique[0]
    return title.format(len(unique)) + "\n" + "\n".join(f"- {problem}" for problem in unique)


def place(region: str, account: str) -> str:
    """Return where a sentence about existing resources holds, such as `us-east-1 (account 123456789012)`."""
    return f"{region} (account {account})"
