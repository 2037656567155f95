#!/usr/bin/python
# Copyright: (c) 2026, the deeplearning.aws contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)

from __future__ import annotations

DOCUMENTATION = r"""
module: boot_bundle
short_description: Store the bundle by which machines configure themselves
version_added: 1.0.0
description:
  - Builds an archive with the roles for nodes, the collections that they use, the settings and ansible-core, and stores
    it in the cluster's bucket under its SHA-256. Equal content gives the same archive.
  - Returns the user data of the machines, which fetches the archive, compares its SHA-256 and runs the roles.
  - For EMR it stores a bootstrap action that does the same.
  - The wheels of ansible-core are downloaded by pip, once, into a folder.
  - In check mode it stores nothing.
options:
  bucket:
    description: The cluster's bucket.
    type: str
    required: true
  account:
    description: The account that must own the bucket.
    type: str
    required: true
  source:
    description: The folder of this collection.
    type: path
    required: true
  collection_paths:
    description: Folders to search for the collection C(ansible.posix), in addition to Python's own.
    type: list
    elements: path
    default: []
  wheels:
    description: The folder of the downloaded wheels.
    type: path
    required: true
  cluster:
    description: The record of the cluster that all its nodes share, as C(deeplearning.aws.node_config) takes it.
    type: dict
    required: true
  efs_tls:
    description: Whether the file system is mounted with TLS.
    type: bool
    default: false
  variables:
    description: Variables of the roles for nodes that the machines use as well, such as C(framework_wheels).
    type: dict
    default: {}
  machines:
    description: By role, the parameters of its machines' user data.
    type: dict
    default: {}
  bootstrap:
    description:
      - The parameters of EMR's bootstrap action. C(role_id) is the id of the IAM role of all nodes, and C(gpus) has the
        number of GPUs by role. Without them there is no bootstrap action.
    type: dict
    default: {}
extends_documentation_fragment: [deeplearning.aws._aws, deeplearning.aws._attributes]
"""

EXAMPLES = r"""
- name: Store the bundle
  deeplearning.aws.boot_bundle:
    region: us-east-1
    bucket: deeplearning-123456789012-us-east-1
    account: "123456789012"
    source: /root/.ansible/collections/ansible_collections/deeplearning/aws
    wheels: .deeplearning/wheels
    cluster: "{{ record }}"
    machines:
      worker: {group: deeplearning-workers, role_id: AROA123456789EXAMPLE, gpus: 1, address: ""}
"""

RETURN = r"""
sha256:
  description: The SHA-256 of the archive.
  returned: success
  type: str
size:
  description: Its size in bytes.
  returned: success
  type: int
user_data:
  description: By role, the user data of its machines.
  returned: success
  type: dict
bootstrap:
  description: EMR's bootstrap action, with its C(path) in S3 and its C(sha256), which is its argument.
  returned: success
  type: dict
"""

import hashlib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.deeplearning.aws.plugins.module_utils.aws.client import ARGUMENTS, Aws
from ansible_collections.deeplearning.aws.plugins.module_utils.boot import bundle
from ansible_collections.deeplearning.aws.plugins.module_utils.contract.boot import (
    bootstrap_key,
    bundle_key,
    first_stage_parameters,
)
from ansible_collections.deeplearning.aws.plugins.module_utils.contract.errors import UserError
from ansible_collections.deeplearning.aws.plugins.module_utils.contract.names import domain
from ansible_collections.deeplearning.aws.plugins.module_utils.contract.report import MAX_BYTES


def store(aws: Aws, bucket: str, account: str, key: str, body: bytes) -> None:
    aws.call("s3", "put_object", Bucket=bucket, Key=key, Body=body, ExpectedBucketOwner=account)


def is_stored(aws: Aws, bucket: str, account: str, key: str, size: int) -> bool:
    missing = ("404", "NoSuchKey", "NoSuchBucket")
    head = aws.find("s3", "head_object", missing, Bucket=bucket, Key=key, ExpectedBucketOwner=account)
    return bool(head) and head["ContentLength"] == size


@dataclass(frozen=True)
class Store:
    aws: Aws
    bucket: str
    account: str
    check_mode: bool

    def ensure(self, key: str, body: bytes) -> bool:
        """Store an object whose key contains its SHA-256. Return False if it is stored already."""
        place = (self.aws, self.bucket, self.account, key)
        if is_stored(*place, len(body)):
            return False
        if not self.check_mode:
            store(*place, body)
        return True


def run(options: dict[str, Any], check_mode: bool) -> dict[str, Any]:
    own = Path(options["source"])
    wheels = bundle.download_wheels(own / "files/boot/requirements.txt", Path(options["wheels"]))
    content = {"cluster": options["cluster"], "efs_tls": options["efs_tls"], "variables": options["variables"]}
    body = bundle.build(content, own, bundle.find_posix(options["collection_paths"]), wheels)
    sha256 = hashlib.sha256(body).hexdigest()

    aws = Aws.from_options(options)
    bucket = Store(aws, options["bucket"], options["account"], check_mode)
    changed = bucket.ensure(bundle_key(sha256), body)
    common = {
        **first_stage_parameters(),
        "largest_report": MAX_BYTES,
        "cluster": options["cluster"]["cluster"],
        "region": aws.region,
        "suffix": domain(aws.partition),
        "bucket": options["bucket"],
        "sha256": sha256,
    }
    program = bundle.read_program(own, "first_stage.py")
    user_data = {
        role: bundle.user_data(program, {**common, "role": role, **parameters})
        for role, parameters in options["machines"].items()
    }
    bootstrap = {}
    if options["bootstrap"]:
        wrapper = bundle.read_program(own, "bootstrap_action.py")
        action = bundle.bootstrap_action(wrapper, program, {**common, **options["bootstrap"]}).encode()
        key = bootstrap_key(hashlib.sha256(action).hexdigest())
        changed |= bucket.ensure(key, action)
        bootstrap = {"path": f"s3://{options['bucket']}/{key}", "sha256": hashlib.sha256(action).hexdigest()}
    return {"changed": changed, "sha256": sha256, "size": len(body), "user_data": user_data, "bootstrap": bootstrap}


def main() -> None:
    module = AnsibleModule(
        argument_spec={
            **ARGUMENTS,
            "bucket": {"type": "str", "required": True},
            "account": {"type": "str", "required": True},
            "source": {"type": "path", "required": True},
            "collection_paths": {"type": "list", "elements": "path", "default": []},
            "wheels": {"type": "path", "required": True},
            "cluster": {"type": "dict", "required": True},
            "efs_tls": {"type": "bool", "default": False},
            "variables": {"type": "dict", "default": {}},
            "machines": {"type": "dict", "default": {}},
            "bootstrap": {"type": "dict", "default": {}},
        },
        supports_check_mode=True,
    )
    try:
        result = run(module.params, module.check_mode)
    except UserError as error:
        module.fail_json(msg=str(error))
    module.exit_json(**result)


if __name__ == "__main__":
    main()
