# Copyright: (c) 2026, the deeplearning.aws contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)

from __future__ import annotations

DOCUMENTATION = r"""
name: printable
type: aggregate
short_description: Remove control characters from all output
version_added: 1.0.0
author:
  - The deeplearning.aws contributors (@deeplearning-aws)
description:
  - Replaces control characters in all that Ansible prints, errors and warnings included. These may come from a node,
    where training code may be root; ansible-core prints the messages of failed modules and connections as they are.
requirements:
  - Enable it in ansible.cfg, C(callbacks_enabled = deeplearning.aws.printable), as this collection's own does.
"""

from typing import Any

from ansible.plugins.callback import CallbackBase
from ansible_collections.deeplearning.aws.plugins.plugin_utils.untrusted import printable


class CallbackModule(CallbackBase):  # type: ignore[misc]
    CALLBACK_VERSION = 2.0
    CALLBACK_TYPE = "aggregate"
    CALLBACK_NAME = "deeplearning.aws.printable"
    CALLBACK_NEEDS_ENABLED = True

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        display = self._display.display

        # All that Ansible prints passes through this one method, before it adds colours. Only progress bars use
        # carriage returns.
        def display_printable(msg: Any, *more: Any, **named: Any) -> None:
            display("\r".join(map(printable, str(msg).split("\r"))), *more, **named)

        self._display.display = display_printable
