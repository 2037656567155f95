#!/usr/bin/python
# Copyright: (c) 2026, the deeplearning.aws contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)

"""Documentation of the action plugin of the same name; this never runs."""

DOCUMENTATION = r"""
module: teardown
short_description: Remove a cluster, or parts of it
version_added: 1.0.0
description:
  - Removes what the cluster has made, found by its tags and names, each thing as soon as nothing of the cluster needs
    it any more, and waits until it has gone. It tells of the progress meanwhile.
  - It works on a cluster that is only half there. One that was interrupted is gone on with by the next run.
  - What the cluster did not make stays. That is a VPC or a file system that was given to it, mount targets of others
    (they only lose a security group of the cluster), machines that bear its tag and were launched by somebody else.
  - It ends with a sweep, which reads everything anew. If anything is left but the file system that is to be kept, it
    fails, and says what that is and, as far as it can be found out, what holds it.
options:
  cluster:
    description: The cluster's name.
    type: str
    required: true
  consent:
    description:
      - The cluster's name once more. Without it, or with another name, nothing is removed; what would be is listed.
    type: str
    default: ""
  keep_file_system:
    description: Whether the file system that the cluster has made stays. Its mount targets go.
    type: bool
    default: true
  parts:
    description:
      - Only what these roles have made (V(zone) is all that lies in a zone). There is no sweep then. By default, all.
    type: list
    elements: str
    default: []
    choices: [node_groups, storage, artifacts, identity, network, zone]
  timeout_seconds:
    description: How long it may take.
    type: float
    default: 1800
  stuck_seconds:
    description: When nothing is on its way any more, what AWS still refuses to delete is given up after this.
    type: float
    default: 90
extends_documentation_fragment: [deeplearning.aws._aws]
attributes:
  check_mode:
    description: In check mode it says what it would remove.
    support: full
  diff_mode:
    description: Shows differences.
    support: none
  action:
    description: Runs on the machine that Ansible runs on.
    support: full
"""

EXAMPLES = r"""
- name: Remove the cluster
  deeplearning.aws.teardown:
    region: us-east-1
    cluster: deeplearning
    consent: deeplearning
"""

RETURN = r"""
removed:
  description: What was removed, each with its kind, id and name. In check mode, what would be.
  returned: with consent
  type: list
  elements: dict
kept:
  description: The file system that stays.
  returned: with consent and without O(parts)
  type: list
  elements: dict
remains:
  description: What is still there and should not be.
  returned: when there is any
  type: list
  elements: dict
"""
