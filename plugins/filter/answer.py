# Copyright: (c) 2026, the deeplearning.aws contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ansible.errors import AnsibleFilterError
from ansible_collections.deeplearning.aws.plugins.plugin_utils import untrusted
from ansible_collections.deeplearning.aws.plugins.plugin_utils.runs import answers


def answer(text: Any, name: str) -> dict[str, Any]:
    try:
        return answers.ANSWERS[name](untrusted.from_json(str(text)))
    except untrusted.InvalidValue as malformed:
        raise AnsibleFilterError(answers.unexpected("A node", name.split(), malformed)) from None


class FilterModule:
    def filters(self) -> dict[str, Callable[..., Any]]:
        return {"answer": answer}
