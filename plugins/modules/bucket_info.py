#!/usr/bin/python
# Copyright: (c) 2026, the deeplearning.aws contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)

from __future__ import annotations

DOCUMENTATION = r"""
module: bucket_info
short_description: Check that a bucket belongs to an account
version_added: 1.0.0
description:
  - Returns whether a bucket exists, and its policy. It fails if the bucket belongs to another account.
  - The names of the collection's buckets can be predicted, so another account may have taken one. Therefore each call
    names the expected owner, which no module of C(amazon.aws) for buckets can do.
options:
  name:
    description: The name of the bucket.
    type: str
    required: true
  account:
    description: The account that must own the bucket.
    type: str
    required: true
extends_documentation_fragment: [deeplearning.aws._aws, deeplearning.aws._attributes]
"""

EXAMPLES = r"""
- name: Check the bucket's owner
  deeplearning.aws.bucket_info:
    region: us-east-1
    name: deeplearning-123456789012-us-east-1
    account: "123456789012"
"""

RETURN = r"""
exists:
  description: Whether the bucket exists.
  returned: success
  type: bool
policy:
  description: The bucket's policy; empty if it has none.
  returned: success
  type: dict
"""

import json
from typing import Any

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.deeplearning.aws.plugins.module_utils.aws.client import ARGUMENTS, Aws, AwsError


def bucket_exists(aws: Aws, name: str, account: str) -> bool:
    try:
        aws.call("s3", "head_bucket", Bucket=name, ExpectedBucketOwner=account)
    except AwsError as error:
        if error.code in ("404", "NoSuchBucket", "NotFound"):
            return False
        if error.denied:
            raise AwsError(
                f"The bucket {name} belongs to another account, or s3:ListBucket on it is not allowed: name another "
                "bucket or cluster, or ask for this permission.",
                error.code,
                error.action,
            ) from error
        raise
    return True


def bucket_policy(aws: Aws, name: str, account: str) -> dict[str, Any]:
    answer = aws.find("s3", "get_bucket_policy", ("NoSuchBucketPolicy",), Bucket=name, ExpectedBucketOwner=account)
    return dict(json.loads(answer.get("Policy", "{}")))


def main() -> None:
    module = AnsibleModule(
        argument_spec={
            **ARGUMENTS,
            "name": {"type": "str", "required": True},
            "account": {"type": "str", "required": True},
        },
        supports_check_mode=True,
    )
    name, account = module.params["name"], module.params["account"]
    try:
        aws = Aws.from_options(module.params)
        exists = bucket_exists(aws, name, account)
        policy = bucket_policy(aws, name, account) if exists else {}
    except AwsError as error:
        module.fail_json(msg=str(error))
    module.exit_json(changed=False, exists=exists, policy=policy)


if __name__ == "__main__":
    main()
