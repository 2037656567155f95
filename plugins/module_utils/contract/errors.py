# Copyright: (c) 2026, the deeplearning.aws contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)

"""Errors that are shown to people."""

from __future__ import annotations


class UserError(Exception):
    """A message to the user: what is wrong, the value, what to do."""
