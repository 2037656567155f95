#!/usr/bin/python
# Copyright: (c) 2026, the deeplearning.aws contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)

"""Documentation of the action plugin of the same name; this never runs."""

DOCUMENTATION = r"""
module: wait_for_baking
short_description: Wait until a machine has prepared itself as the source of an image
version_added: 1.0.0
description:
  - Watches a machine that installs frameworks, removes what belongs to it alone, and stops. Prints its steps.
  - Fails with the last lines of its log if it reports a failure, and if it ends otherwise.
options:
  instance_id:
    description: The machine.
    type: str
    required: true
  role_id:
    description: The unique id of its IAM role.
    type: str
    required: true
  bucket:
    description: The bucket with its report.
    type: str
    required: true
  account:
    description: The account that must own the bucket.
    type: str
    required: true
  timeout_seconds:
    description: How long to wait.
    type: float
    required: true
extends_documentation_fragment:
  - deeplearning.aws._aws
  - deeplearning.aws._attributes
  - deeplearning.aws._attributes.action
notes:
  - It needs the permissions C(ec2:DescribeInstances), C(ec2:GetConsoleOutput), C(s3:ListBucket) and C(s3:GetObject).
"""

EXAMPLES = r"""
- name: Wait for the machine
  deeplearning.aws.wait_for_baking:
    instance_id: i-0123456789abcdef0
    role_id: AROA123456789EXAMPLE
    bucket: red-123456789012-us-east-1
    account: "123456789012"
    timeout_seconds: 3600
"""

RETURN = r"""
"""
