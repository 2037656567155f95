#!/usr/bin/python
# Copyright: (c) 2026, the deeplearning.aws contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)

from __future__ import annotations

DOCUMENTATION = r"""
module: launch_template
short_description: Create the launch template of a cluster's machines
version_added: 1.0.0
description:
  - Creates a launch template, or another version of it if the newest one differs from the options. The newest version
    is the default one.
  - Machines answer metadata version 2 only, with a hop limit of 1 and without their tags. Their root volume is an
    encrypted gp3.
  - M(amazon.aws.ec2_launch_template) has no options for the type of an interface and its network card, so it cannot
    describe a machine with EFA.
options:
  name:
    description: Its name.
    type: str
    required: true
  image_id:
    description: The AMI.
    type: str
    required: true
  instance_type:
    description: The instance type.
    type: str
    required: true
  key_name:
    description: The EC2 key pair that may log in.
    type: str
    required: true
  instance_profile:
    description: The ARN of the instance profile.
    type: str
    required: true
  security_groups:
    description: Ids of the security groups of all interfaces.
    type: list
    elements: str
    default: []
  root_device:
    description: The AMI's root device.
    type: str
    default: /dev/sda1
  root_volume_gib:
    description: The size of the root volume.
    type: int
    default: 100
  root_volume_type:
    description: The type of the root volume.
    type: str
    default: gp3
  root_volume_throughput:
    description: The throughput of a root volume of type C(gp3), in MiB/s; 0 for AWS's default.
    type: int
    default: 0
  placement_group:
    description: The placement group to start in.
    type: str
    default: ""
  efa_cards:
    description: The indexes of the network cards that get an interface for EFA; none for an ordinary machine.
    type: list
    elements: int
    default: []
  user_data:
    description: The user data, as plain text.
    type: str
    default: ""
  spot:
    description: Whether to start spot instances.
    type: bool
    default: false
  tags:
    description: The template's own tags, in the call that creates it.
    type: dict
    default: {}
  instance_tags:
    description: Tags of instances, volumes and network interfaces.
    type: dict
    default: {}
extends_documentation_fragment: [deeplearning.aws._aws, deeplearning.aws._attributes]
attributes:
  diff_mode:
    support: full
"""

EXAMPLES = r"""
- name: Create the workers' launch template
  deeplearning.aws.launch_template:
    region: us-east-1
    name: deeplearning-workers
    image_id: ami-0123456789abcdef0
    instance_type: g5.xlarge
    key_name: deeplearning
    instance_profile: arn:aws:iam::123456789012:instance-profile/deeplearning-us-east-1-worker
    security_groups: [sg-0123456789abcdef0]
    tags: {"Name": deeplearning-workers, "deeplearning:cluster": deeplearning}
    instance_tags: {"Name": deeplearning-worker, "deeplearning:cluster": deeplearning, "deeplearning:role": worker}
"""

RETURN = r"""
template_id:
  description: Its id; empty in check mode if the template does not exist yet.
  returned: success
  type: str
  sample: lt-0123456789abcdef0
version:
  description: The number of the version with these options.
  returned: success
  type: int
  sample: 1
"""

from typing import Any

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.deeplearning.aws.plugins.module_utils.aws.client import Aws
from ansible_collections.deeplearning.aws.plugins.module_utils.aws.module import run_module
from ansible_collections.deeplearning.aws.plugins.module_utils.contract.names import missing_tags, tag_list, tags_of
from ansible_collections.deeplearning.aws.plugins.module_utils.resources.launch_template import (
    launch_data,
    needs_version,
    newest_version,
)


class Template:
    def __init__(self, aws: Aws, name: str, check: bool) -> None:
        self._aws = aws
        self._name = name
        self._check = check
        self.changed = False
        self.before: dict[str, Any] = {}
        self.after: dict[str, Any] = {}

    def converge(self, data: dict[str, Any], tags: dict[str, str]) -> tuple[str, int]:
        self.after = {"data": data, "tags": tags}
        filters = [{"Name": "launch-template-name", "Values": [self._name]}]
        templates = self._aws.pages("ec2", "describe_launch_templates", "LaunchTemplates", Filters=filters)
        if not templates:
            return self._create(data, tags)
        existing = templates[0]
        template_id = str(existing["LaunchTemplateId"])
        newest = newest_version(self._aws, template_id)
        tags_before = tags_of(existing.get("Tags"))
        self.before = {"data": newest["LaunchTemplateData"], "tags": tags_before}
        version = int(newest["VersionNumber"])
        if needs_version(data, newest["LaunchTemplateData"]):
            answer = self._change(
                "create_launch_template_version", LaunchTemplateId=template_id, LaunchTemplateData=data
            )
            version = int(answer.get("LaunchTemplateVersion", {}).get("VersionNumber", version + 1))
        else:
            self.after["data"] = self.before["data"]
        if int(existing["DefaultVersionNumber"]) != version:
            self._change("modify_launch_template", LaunchTemplateId=template_id, DefaultVersion=str(version))
        missing = missing_tags(tags, tags_before)
        self.after["tags"] = {**tags_before, **missing}
        if missing:
            self._change("create_tags", Resources=[template_id], Tags=tag_list(missing))
        return template_id, version

    def _change(self, operation: str, **params: Any) -> dict[str, Any]:
        self.changed = True
        return {} if self._check else self._aws.call("ec2", operation, **params)

    def _create(self, data: dict[str, Any], tags: dict[str, str]) -> tuple[str, int]:
        own_tags = [{"ResourceType": "launch-template", "Tags": tag_list(tags)}] if tags else []
        answer = self._change(
            "create_launch_template",
            LaunchTemplateName=self._name,
            LaunchTemplateData=data,
            TagSpecifications=own_tags,
        )
        created = answer.get("LaunchTemplate", {})
        return str(created.get("LaunchTemplateId", "")), int(created.get("LatestVersionNumber", 1))


def run(aws: Aws, module: AnsibleModule) -> dict[str, Any]:
    options = module.params
    tags = {key: str(value) for key, value in options["tags"].items()}
    template = Template(aws, options["name"], module.check_mode)
    template_id, version = template.converge(launch_data(options), tags)
    return {
        "changed": template.changed,
        "template_id": template_id,
        "version": version,
        "diff": {"before": template.before, "after": template.after},
    }


def main() -> None:
    run_module(DOCUMENTATION, run)


if __name__ == "__main__":
    main()
