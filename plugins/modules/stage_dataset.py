#!/usr/bin/python
# Copyright: (c) 2026, the deeplearning.aws contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)

"""Documentation of the action plugin of the same name; this never runs."""

DOCUMENTATION = r"""
module: stage_dataset
short_description: Stage a data set in a bucket
version_added: 1.0.0
description:
  - Sends a data set to the account's bucket of data sets, or to another one, and shows progress.
  - What is in the bucket already is neither fetched nor sent again. Interrupted downloads are resumed. Published
    checksums must match, also in the list of a data set that is complete in the bucket. Other checksums are recorded
    the first time.
  - A list of its parts is written last, so that a data set in a bucket is complete or not there.
options:
  data:
    description: V(coco2017), V(cifar10), V(tensorpack), or with O(source_dir) any name.
    type: str
    required: true
  source_dir:
    description: A folder of this machine with the files, instead of downloading them.
    type: str
    default: ""
  bucket:
    description: Another bucket than the account's own of data sets, as C(bucket) or C(bucket/prefix), with or without C(s3://).
    type: str
    default: ""
  folder:
    description: Where files are downloaded to, each data set to a folder of its own.
    type: str
    required: true
  records:
    description: The folder with the checksums of the first fetches, C(first-fetches.json).
    type: str
    required: true
  replace:
    description: Send all files again, in place of what is in the bucket.
    type: bool
    default: false
extends_documentation_fragment:
  - deeplearning.aws._aws
  - deeplearning.aws._attributes
  - deeplearning.aws._attributes.action
attributes:
  check_mode:
    details: Returns in check mode whether anything would be fetched or sent. It reads no file and compares sizes.
"""

EXAMPLES = r"""
- name: Stage COCO 2017
  deeplearning.aws.stage_dataset:
    region: us-east-1
    data: coco2017
    folder: ~/stage
    records: ~/.deeplearning
"""

RETURN = r"""
source:
  description: The address of the data set.
  returned: success
  type: str
  sample: s3://123456789012-us-east-1-deeplearning-data/coco2017
version:
  description: A digest of the content. Empty in check mode if the data set would be staged.
  returned: success
  type: str
sha256:
  description: The SHA-256 of the list of its parts, to unpack no other one. Empty in check mode if it would be staged.
  returned: success
  type: str
unpublished:
  description: The files without a published checksum whose own checksum was recorded now.
  returned: success
  type: list
  elements: str
"""
