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
    description: The name of the bucket. By default that of the account's data sets.
    type: str
    default: ""
  account:
    description: The account that must own the bucket. By default that of the credentials.
    type: str
    default: ""
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
name:
  description: The name of the bucket.
  returned: success
  type: str
  sample: 123456789012-us-east-1-deeplearning-data
account:
  description: The account that must own it.
  returned: success
  type: str
  sample: "123456789012"
partition:
  description: The part of AWS that the account belongs to.
  returned: success
  type: str
  sample: aws
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
from ansible_collections.deeplearning.aws.plugins.module_utils.aws.client import Aws, AwsError
from ansible_collections.deeplearning.aws.plugins.module_utils.aws.module import run_module
from ansible_collections.deeplearning.aws.plugins.module_utils.contract.names import Names


def bucket_exists(aws: Aws, name: str, account: str) -> bool:
    try:
        aws.call("s3", "head_bucket", Bucket=name, ExpectedBucketOwner=account)
    except AwsError as error:
        if error.code == "404":
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


def run(aws: Aws, module: AnsibleModule) -> dict[str, Any]:
    account = module.params["account"] or aws.account
    name = module.params["name"] or Names("", account, aws.region).data_bucket
    exists = bucket_exists(aws, name, account)
    return {
        "changed": False,
        "name": name,
        "account": account,
        "partition": aws.partition,
        "exists": exists,
        "policy": bucket_policy(aws, name, account) if exists else {},
    }


def main() -> None:
    run_module(DOCUMENTATION, run)


if __name__ == "__main__":
    main()
