#!/usr/bin/python
# Copyright: (c) 2026, the deeplearning.aws contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)

"""Documentation of the action plugin of the same name; this never runs."""

DOCUMENTATION = r"""
module: unpack
short_description: Unpack a share of a staged data set
version_added: 1.0.0
description:
  - Has the program on a node unpack its share of a data set, which M(deeplearning.aws.stage) has staged, to the shared
    file system, and tells how far it is.
  - Shares of several nodes lie side by side and are put together afterwards, by C(deeplearning unpack finish).
  - What is there as a whole, and a share that was done, is not unpacked again.
options:
  data:
    description: The data set's name.
    type: str
    required: true
  source:
    description: Where it is staged, such as V(s3://bucket/data/coco2017).
    type: str
    required: true
  share:
    description: Which share is this node's, from 1 on.
    type: int
    required: true
  shares:
    description: Of how many.
    type: int
    required: true
author:
  - The deeplearning.aws contributors (@deeplearning)
attributes:
  check_mode:
    description: In check mode it asks whether the data set is there.
    support: full
  diff_mode:
    description: Shows differences.
    support: none
  action:
    description: Runs on the machine that Ansible runs on, over the connection to the node.
    support: full
"""

EXAMPLES = r"""
- name: Unpack a share
  deeplearning.aws.unpack:
    data: coco2017
    source: s3://deeplearning-123456789012-us-east-1/data/coco2017
    share: 2
    shares: 4
"""

RETURN = r"""
files:
  description: How many files are in the share; in check mode, 0.
  returned: success
  type: int
"""
