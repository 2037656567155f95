#!/usr/bin/python
# Copyright: (c) 2026, the deeplearning.aws contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)

from __future__ import annotations

DOCUMENTATION = r"""
module: bucket
short_description: A bucket of a cluster's own
version_added: 1.0.0
description:
  - Keeps a bucket that is encrypted at rest, with all public access blocked and without access lists, and that refuses
    requests without TLS.
  - There is this module because M(amazon.aws.s3_bucket) knows no check mode, and asks for a dozen things that are
    nobody's concern here.
options:
  name:
    description: Its name.
    type: str
    required: true
  account:
    description: The account that it has to belong to. A bucket of another account is refused.
    type: str
    required: true
  tags:
    description: Its tags. Those that somebody has added stay.
    type: dict
    default: {}
extends_documentation_fragment: [deeplearning.aws._aws]
attributes:
  check_mode:
    description: Can run in check mode and say what it would change.
    support: full
  diff_mode:
    description: Says what it has changed or would change, in diff mode.
    support: full
"""

EXAMPLES = r"""
- name: Make the bucket
  deeplearning.aws.bucket:
    region: us-east-1
    name: deeplearning-123456789012-us-east-1
    account: "123456789012"
    tags: {"deeplearning:cluster": deeplearning}
"""

RETURN = r""" # """

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.deeplearning.aws.plugins.module_utils._aws import ARGUMENTS, Aws, AwsProblem
from ansible_collections.deeplearning.aws.plugins.module_utils._bucket import Bucket


def main() -> None:
    module = AnsibleModule(
        argument_spec={
            **ARGUMENTS,
            "name": {"type": "str", "required": True},
            "account": {"type": "str", "required": True},
            "tags": {"type": "dict", "default": {}},
        },
        supports_check_mode=True,
    )
    given = module.params
    try:
        bucket = Bucket(Aws.of(module), given["name"], given["account"], module.check_mode)
        bucket.present({key: str(value) for key, value in given["tags"].items()})
    except AwsProblem as problem:
        module.fail_json(msg=str(problem))
    module.exit_json(changed=bucket.changed, diff={"before": bucket.before, "after": bucket.after})


if __name__ == "__main__":
    main()
