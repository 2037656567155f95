# Copyright: (c) 2026, the deeplearning.aws contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)

"""What the modules that call AWS have in common. Their options are those of their documentation, as for actions.

They run where Ansible itself does, so there is a parser of YAML. Modules that run on nodes cannot use this.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from ansible.module_utils.basic import AnsibleModule, missing_required_lib
from ansible.module_utils.common.yaml import HAS_YAML, yaml_load

from ..contract.errors import UserError
from .client import Aws

_AWS_OPTIONS: Mapping[str, Mapping[str, Any]] = {
    "region": {"type": "str", "required": True},
    "profile": {"type": "str", "default": ""},
    "role_arn": {"type": "str", "default": ""},
}
"""What the documentation fragment `_aws` documents. The SDK itself reads the endpoint and the keys, such as from its
environment variables."""

_NO_SECRETS = ("key_name", "creation_token")
"""Ansible takes them for secrets by their names, and would remove them from all output."""


class _ModuleWithoutYaml(AnsibleModule):  # type: ignore[misc]
    """It knows no options, so it fails with any."""

    def fail_json(self, msg: str, **more: Any) -> None:
        super().fail_json(msg=missing_required_lib("PyYAML"))


def run_module(documentation: str, run: Callable[[Aws, AnsibleModule], dict[str, Any]]) -> None:
    """End the module with the result that `run` returns, or with the sentence of the UserError that it raises."""
    spec = argument_spec_of(documentation) if HAS_YAML else {}
    module = (AnsibleModule if HAS_YAML else _ModuleWithoutYaml)(argument_spec=spec, supports_check_mode=True)
    try:
        result = run(Aws.from_options(module.params), module)
    except UserError as error:
        module.fail_json(msg=str(error))
    module.exit_json(**result)


def argument_spec_of(documentation: str) -> dict[str, Any]:
    """Return the argument spec of a module's documentation."""
    documented = yaml_load(documentation)
    calls_aws = "deeplearning.aws._aws" in documented["extends_documentation_fragment"]
    return _spec_of({**(_AWS_OPTIONS if calls_aws else {}), **documented["options"]})


def _spec_of(options: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    spec: dict[str, Any] = {}
    for name, option in options.items():
        spec[name] = {key: option[key] for key in ("type", "elements", "required", "default") if key in option}
        if name in _NO_SECRETS:
            spec[name]["no_log"] = False
        if "choices" in option:
            spec[name]["choices"] = list(option["choices"])
        if "suboptions" in option:
            spec[name]["options"] = _spec_of(option["suboptions"])
    return spec
