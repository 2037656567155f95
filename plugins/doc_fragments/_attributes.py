# Copyright: (c) 2026, the deeplearning.aws contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)

"""Attributes that the modules of this collection share. A module's own documentation overrides them."""

from __future__ import annotations


class ModuleDocFragment:
    DOCUMENTATION = r"""
options: {}
author:
  - The deeplearning.aws contributors (@deeplearning-aws)
attributes:
  check_mode:
    description: Can run in check mode without changing anything.
    support: full
  diff_mode:
    description: Shows its changes in diff mode.
    support: none
"""

    ACTION = r"""
options: {}
attributes:
  action:
    description: Runs on the machine that Ansible runs on.
    support: full
"""
