#!/usr/bin/python
# Copyright: (c) 2026, the deeplearning.aws contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)

"""Documentation of the action plugin of the same name; this never runs."""

DOCUMENTATION = r"""
module: check_input
short_description: Validate the settings and options of a playbook
version_added: 1.0.0
description:
  - Takes the settings of the cluster (variables whose names begin with C(cluster_)) and the options of the playbook,
    gives each value its type, and fails with a sentence for each problem, all of them at once. Missing values get their
    defaults.
  - Names on the command line that are close to an option or a setting are refused, and the one that was probably meant
    is named. So are options of other playbooks, and words that belong to no name. Other names may be variables of your
    own playbooks, so there is only a warning.
  - If no inventory of P(deeplearning.aws.cluster#inventory) was read and C(cluster_name) is not set, it fails.
  - A setting that is not given is as the cluster was made, by the record in its bucket (C(settings.json)), or the
    default for a new cluster. For audit and destroy only what is given counts.
  - If O(playbook) writes files about the cluster, and its folder has those of a cluster of the same name in another
    region, which still exists there, it fails. For plan this is a warning.
  - It fails if the inventory was read for another region, or if C(aws_region) or C(region) on the command line is
    another one.
  - Otherwise AWS and the cluster are not contacted; M(deeplearning.aws.plan) compares the settings with AWS.
  - The settings are listed in the collection's F(docs/settings.md), the options in F(docs/playbooks.md).
options:
  playbook:
    description: The playbook whose options are validated.
    type: str
    required: true
    choices:
      - site
      - emr
      - plan
      - provision
      - configure
      - status
      - audit
      - health
      - destroy
      - stage
      - image
      - extend
      - replace
      - logs
      - status_page
      - train
      - evaluate
      - follow
      - stop
      - report
      - tensorboard
      - new_project
      - get
extends_documentation_fragment: [deeplearning.aws._attributes, deeplearning.aws._attributes.action]
"""

EXAMPLES = r"""
- name: Validate the settings and options
  deeplearning.aws.check_input:
    playbook: train
  register: checked

- name: Print the framework
  ansible.builtin.debug:
    msg: "{{ checked.options.framework }} on {{ checked.cluster.name }}"
"""

RETURN = r"""
cluster:
  description:
    - The settings by their names without the prefix, together with those that follow from others (such as
      C(worker_min), C(master_instance_type) and C(public_key)).
  returned: success
  type: dict
  sample: {"name": "red", "region": "eu-west-1", "worker_count": 2, "worker_min": 1}
record:
  description: The content of the record, with the settings that are given now.
  returned: success
  type: dict
  sample: {"schema": 1, "settings": {"cluster_worker_count": 2}}
recorded:
  description: Whether the cluster has a record of its settings.
  returned: success
  type: bool
code_left_out:
  description: For train, the paths of files and folders that are not sent with the code, as they may hold secrets.
  returned: success, for train
  type: list
  elements: str
specified:
  description: The names of the settings that are given now, without the prefix.
  returned: success
  type: list
  elements: str
settings_before:
  description: What the cluster was made with, of the settings that change.
  returned: success
  type: dict
  sample: {"worker_count": 4}
options:
  description:
    - The playbook's options. V(null) is one without a value and without a default.
    - For train.yml, C(env) is not among them, as it may hold secrets.
  returned: success
  type: dict
  sample: {"framework": "pytorch", "nodes": 2, "script_args": ["--epochs", "2"]}
request:
  description: The request for the node program, without C(environment) and without data that is staged first.
  returned: for train
  type: dict
recipe_env:
  description: The environment variables of the recipe, unless C(env) is given.
  returned: for train
  type: dict
emr:
  description: Whether the settings are those of a cluster of EMR's machines.
  returned: success
  type: bool
lock_version:
  description: The version of the cluster's lock, for M(deeplearning.aws.cluster_lock). Empty for playbooks without it.
  returned: success
  type: str
requested_by:
  description: The user and the machine that make the request.
  returned: success
  type: str
  sample: me@laptop
"""
