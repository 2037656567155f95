#!/usr/bin/python
# Copyright: (c) 2026, the deeplearning.aws contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)

"""Documentation of the action plugin of the same name; this never runs."""

DOCUMENTATION = r"""
module: teardown
short_description: Remove a cluster, or its resources in one zone
version_added: 1.0.0
description:
  - Deletes the resources that the cluster created, in the order of their dependencies, waits until they are gone, and
    prints the progress.
  - Resources are found by their tags and names, so the next run resumes one that was interrupted.
  - Resources that the cluster did not create stay, such as a VPC or a file system of the user's own, instances that
    others launched, and mount targets of others. These only lose a security group of the cluster. Resources without
    the cluster's tag in its VPC are listed, with the command that deletes each of them.
  - At the end it reads all resources again. If any is left but a file system that is to be kept, it fails, and reports
    what holds it, as far as AWS shows that.
options:
  cluster:
    description: The cluster's name.
    type: str
    required: true
  consent:
    description:
      - The cluster's name again. Without it nothing is removed, and the resources are listed.
      - With V(@) and the region (V(red@eu-west-1)) it also confirms that O(region) is the right one. Without that, the
        task fails if nothing is left in O(region) and the files of the project record another region or account for the
        cluster, or record none and another region of the account has it. This applies to O(scope=all).
    type: str
    default: ""
  summary_file:
    description:
      - The summary of the cluster, which records its region and account. By default F(<cluster>.json) in
        O(deeplearning.aws.cluster#inventory:folder). It is not changed.
    type: str
    default: ""
  keep_file_system:
    description: Whether to keep the file system that the cluster created. Its mount targets are deleted.
    type: bool
    default: true
  also:
    description:
      - The ids of resources without the cluster's tag to delete too. Only those in the VPC that the cluster created are
        accepted, as the list of resources shows them. They get the cluster's tag first, so that the next run finds them
        if this one is interrupted. Ids of resources that no longer exist are ignored.
    type: list
    elements: str
    default: []
  data_bucket:
    description:
      - The name of the account's bucket of data sets, to delete it with all that is in it. It belongs to no cluster.
        Without O(consent), nothing else is removed.
    type: str
    default: ""
  scope:
    description:
      - What to remove. With V(zone), only the resources in the availability zone, so that another zone can be tried.
        With V(images), only the images that the cluster has made, which are kept otherwise. Then resources are not read
        again at the end.
    type: str
    choices: [all, zone, images]
    default: all
  lock:
    description:
      - The lock of the cluster that an earlier task of the playbook has taken, for a O(scope) other than V(all). With
        O(scope=all) the task takes the lock itself.
    type: dict
    default: {}
  lock_wait:
    description: How many seconds to wait for a playbook that holds the lock. After that the lock is taken over.
    type: int
    default: 300
  break_lock:
    description: The id of a lock that is to be taken over at once.
    type: str
    default: ""
  scan_seconds:
    description:
      - The limit of the search in the other regions of the account. It takes place if nothing is left in O(region), and
        the files of the project record no place.
    type: float
    default: 10
  stuck_seconds:
    description: Seconds after which a resource is given up that AWS refuses to delete while nothing else changes.
    type: float
    default: 90
extends_documentation_fragment:
  - deeplearning.aws._aws
  - deeplearning.aws._attributes
  - deeplearning.aws._attributes.action
attributes:
  check_mode:
    details: In check mode it returns what it would remove.
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
retained:
  description: The file system that stays.
  returned: with consent and O(scope=all)
  type: list
  elements: dict
leftovers:
  description: Resources that could not be removed.
  returned: when there are any
  type: list
  elements: dict
"""
