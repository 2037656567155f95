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
from pathlib import Path
from typing import Any

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.deeplearning.aws.plugins.module_utils.aws.client import Aws
from ansible_collections.deeplearning.aws.plugins.module_utils.aws.module import run_module
from ansible_collections.deeplearning.aws.plugins.module_utils.boot import bundle
from ansible_collections.deeplearning.aws.plugins.module_utils.contract.boot import (
    bootstrap_key,
    bundle_key,
    first_stage_parameters,
)
from ansible_collections.deeplearning.aws.plugins.module_utils.contract.names import domain
from ansible_collections.deeplearning.aws.plugins.module_utils.contract.report import MAX_BYTES


def ensure(aws: Aws, module: AnsibleModule, key: str, body: bytes) -> bool:
    """Store an object whose key contains its SHA-256. Return False if it is stored already."""
    place = {"Bucket": module.params["bucket"], "Key": key, "ExpectedBucketOwner": module.params["account"]}
    stored = aws.find("s3", "head_object", ("404", "NoSuchKey", "NoSuchBucket"), **place)
    if stored and stored["ContentLength"] == len(body):
        return False
    if not module.check_mode:
        aws.call("s3", "put_object", Body=body, **place)
    return True


def run(aws: Aws, module: AnsibleModule) -> dict[str, Any]:
    options = module.params
    own = Path(options["source"])
    wheels = bundle.download_wheels(own / "files/boot/requirements.txt", Path(options["wheels"]))
    content = {"cluster": options["cluster"], "efs_tls": options["efs_tls"], "variables": options["variables"]}
    body = bundle.build(content, own, bundle.find_posix(options["collection_paths"]), wheels)
    sha256 = hashlib.sha256(body).hexdigest()
    changed = ensure(aws, module, bundle_key(sha256), body)
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
        action_sha256 = hashlib.sha256(action).hexdigest()
        key = bootstrap_key(action_sha256)
        changed |= ensure(aws, module, key, action)
        bootstrap = {"path": f"s3://{options['bucket']}/{key}", "sha256": action_sha256}
    return {"changed": changed, "sha256": sha256, "size": len(body), "user_data": user_data, "bootstrap": bootstrap}


def main() -> None:
    run_module(DOCUMENTATION, run)


if __name__ == "__main__":
    main()
