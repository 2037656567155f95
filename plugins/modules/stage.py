#!/usr/bin/python
# Copyright: (c) 2026, the deeplearning.aws contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)

"""Documentation of the action plugin of the same name; this never runs."""

DOCUMENTATION = r"""
module: stage
short_description: Stage a data set in a bucket
version_added: 1.0.0
description:
  - Brings a data set to the cluster's bucket, or to another one, and tells how far it is.
  - What is there is neither fetched nor sent again. Fetching goes on from where it was interrupted, checksums that
    somebody has published have to be right, and what nobody has published is written down at the first time.
  - A list of its parts is written last, so that a set in a bucket is whole or not there.
options:
  cluster:
    description: The cluster's name, for its bucket.
    type: str
    required: true
  data:
    description: V(coco2017), V(cifar10), V(tensorpack), or with O(source_dir) any name.
    type: str
    required: true
  source_dir:
    description: A folder of this machine with the files, instead of fetching them.
    type: str
    default: ""
  bucket:
    description: Another bucket, as C(s3://bucket) or C(s3://bucket/prefix).
    type: str
    default: ""
  folder:
    description: Where files are fetched to, each set in a folder of its own.
    type: str
    required: true
extends_documentation_fragment: [deeplearning.aws._aws]
author:
  - The deeplearning.aws contributors (@deeplearning)
attributes:
  check_mode:
    description: In check mode it says whether anything would be fetched or sent. It reads no file and goes by sizes.
    support: full
  diff_mode:
    description: Shows differences.
    support: none
  action:
    description: Runs on the machine that Ansible runs on.
    support: full
"""

EXAMPLES = r"""
- name: Have COCO 2017 in the cluster's bucket
  deeplearning.aws.stage:
    region: us-east-1
    cluster: deeplearning
    data: coco2017
    folder: ~/stage
"""

RETURN = r"""
source:
  description: Where it is.
  returned: success
  type: str
  sample: s3://deeplearning-123456789012-us-east-1/data/coco2017
version:
  description: Changes with what is in it. Empty in check mode, if it would be staged.
  returned: success
  type: str
unpublished:
  description: Files whose checksum nobody has published, and that were written down now.
  returned: success
  type: list
  elements: str
"""
