#!/usr/bin/python
# Copyright: (c) 2026, the deeplearning.aws contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)

from __future__ import annotations

DOCUMENTATION = r"""
module: launch_template
short_description: How the machines of a cluster are started
version_added: 1.0.0
description:
  - Keeps a launch template whose newest version, which is its default, starts machines as described. A new version is
    made only when something has changed.
  - Machines answer metadata version 2 only, with a hop limit of 1 and without their tags. Their root volume is an
    encrypted gp3.
  - There is this module because M(amazon.aws.ec2_launch_template) knows no interface types and no network cards, so it
    cannot describe a machine with EFA, and because its new versions keep what was left out of them.
options:
  state:
    description: Whether it shall exist.
    type: str
    choices: [present, absent]
    default: present
  name:
    description: Its name.
    type: str
    required: true
  image_id:
    description: The AMI.
    type: str
  instance_type:
    description: The instance type.
    type: str
  key_name:
    description: The EC2 key pair that may log in.
    type: str
  instance_profile:
    description: The ARN of the instance profile.
    type: str
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
  placement_group:
    description: The placement group to start in.
    type: str
    default: ""
  efa_interfaces:
    description: How many EFA interfaces, one a network card; 0 for an ordinary interface.
    type: int
    default: 0
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
extends_documentation_fragment: [deeplearning.aws._aws]
attributes:
  check_mode:
    description: Can run in check mode and say what it would change.
    support: full
  diff_mode:
    description: Says what it has changed or would change, in diff mode.
    support: full
"""

EXAMPLES = r"""
- name: Describe the workers' machines
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
  description: Its id; empty where there is none yet (check mode).
  returned: O(state=present)
  type: str
  sample: lt-0123456789abcdef0
version:
  description: The number of the version that says what was asked for.
  returned: O(state=present)
  type: int
  sample: 1
"""

from typing import Any

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.deeplearning.aws.plugins.module_utils._aws import ARGUMENTS, Aws, AwsProblem
from ansible_collections.deeplearning.aws.plugins.module_utils._launch import Machine, launch_data, needs_version
from ansible_collections.deeplearning.aws.plugins.module_utils._names import tag_list, tags_of


class Template:
    def __init__(self, aws: Aws, name: str, check: bool) -> None:
        self._aws = aws
        self._name = name
        self._check = check
        self.changed = False
        self.before: dict[str, Any] = {}
        self.after: dict[str, Any] = {}

    def _found(self) -> dict[str, Any]:
        listed = self._aws.pages(
            "ec2",
            "describe_launch_templates",
            "LaunchTemplates",
            Filters=[{"Name": "launch-template-name", "Values": [self._name]}],
        )
        return listed[0] if listed else {}

    def present(self, data: dict[str, Any], tags: dict[str, str]) -> tuple[str, int]:
        self.after = {"data": data, "tags": tags}
        found = self._found()
        if not found:
            return self._create(data, tags)
        template_id = str(found["LaunchTemplateId"])
        newest = self._aws.call(
            "ec2", "describe_launch_template_versions", LaunchTemplateId=template_id, Versions=["$Latest"]
        )["LaunchTemplateVersions"][0]
        have = tags_of(found.get("Tags"))
        self.before = {"data": newest["LaunchTemplateData"], "tags": have}
        version = int(newest["VersionNumber"])
        if needs_version(data, newest["LaunchTemplateData"]):
            version = self._add_version(template_id, data, version)
        else:
            self.after["data"] = self.before["data"]
        if int(found["DefaultVersionNumber"]) != version:
            self._change("modify_launch_template", LaunchTemplateId=template_id, DefaultVersion=str(version))
        missing = {key: value for key, value in tags.items() if have.get(key) != value}
        self.after["tags"] = {**have, **missing}
        if missing:
            self._change("create_tags", Resources=[template_id], Tags=tag_list(missing))
        return template_id, version

    def _change(self, operation: str, **params: Any) -> dict[str, Any]:
        self.changed = True
        return {} if self._check else self._aws.call("ec2", operation, **params)

    def _create(self, data: dict[str, Any], tags: dict[str, str]) -> tuple[str, int]:
        answer = self._change(
            "create_launch_template",
            LaunchTemplateName=self._name,
            LaunchTemplateData=data,
            TagSpecifications=[{"ResourceType": "launch-template", "Tags": tag_list(tags)}],
        )
        made = answer.get("LaunchTemplate", {})
        return str(made.get("LaunchTemplateId", "")), int(made.get("LatestVersionNumber", 1))

    def _add_version(self, template_id: str, data: dict[str, Any], newest: int) -> int:
        answer = self._change("create_launch_template_version", LaunchTemplateId=template_id, LaunchTemplateData=data)
        return int(answer.get("LaunchTemplateVersion", {}).get("VersionNumber", newest + 1))

    def absent(self) -> None:
        found = self._found()
        if found:
            self.before = {"name": self._name, "tags": tags_of(found.get("Tags"))}
            self._change("delete_launch_template", LaunchTemplateId=found["LaunchTemplateId"])


def main() -> None:
    module = AnsibleModule(
        argument_spec={
            **ARGUMENTS,
            "state": {"type": "str", "choices": ["present", "absent"], "default": "present"},
            "name": {"type": "str", "required": True},
            "image_id": {"type": "str"},
            "instance_type": {"type": "str"},
            "key_name": {"type": "str", "no_log": False},
            "instance_profile": {"type": "str"},
            "security_groups": {"type": "list", "elements": "str", "default": []},
            "root_device": {"type": "str", "default": "/dev/sda1"},
            "root_volume_gib": {"type": "int", "default": 100},
            "placement_group": {"type": "str", "default": ""},
            "efa_interfaces": {"type": "int", "default": 0},
            "spot": {"type": "bool", "default": False},
            "tags": {"type": "dict", "default": {}},
            "instance_tags": {"type": "dict", "default": {}},
        },
        required_if=[("state", "present", ("image_id", "instance_type", "key_name", "instance_profile"))],
        supports_check_mode=True,
    )
    given = module.params
    result: dict[str, Any] = {}
    try:
        template = Template(Aws.of(module), given["name"], module.check_mode)
        if given["state"] == "present":
            tags = {key: str(value) for key, value in given["tags"].items()}
            template_id, version = template.present(launch_data(_machine(given)), tags)
            result = {"template_id": template_id, "version": version}
        else:
            template.absent()
    except AwsProblem as problem:
        module.fail_json(msg=str(problem))
    module.exit_json(changed=template.changed, diff={"before": template.before, "after": template.after}, **result)


def _machine(given: dict[str, Any]) -> Machine:
    return Machine(
        image_id=given["image_id"],
        instance_type=given["instance_type"],
        key_name=given["key_name"],
        instance_profile=given["instance_profile"],
        security_groups=given["security_groups"],
        root_device=given["root_device"],
        root_volume_gib=given["root_volume_gib"],
        placement_group=given["placement_group"],
        efa_interfaces=given["efa_interfaces"],
        spot=given["spot"],
        tags={key: str(value) for key, value in given["instance_tags"].items()},
    )


if __name__ == "__main__":
    main()
