"""Launch templates and their versions. moto loses what it does not know of: versions that are deleted, tags that come
later, pages, the version that another is made from."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Iterable, Mapping
from typing import Any

from moto.ec2.models.launch_templates import LaunchTemplate, LaunchTemplateVersion

from localcloud.api.ec2.filters import listing, refuse_dry_run, tag_list, tags_of
from localcloud.api.ec2.launch_data import numbered, template_of
from localcloud.api.ec2.moto_records import backend_of, new_id, set_tags, spelled, tags_in
from localcloud.api.ec2.records import now, once
from localcloud.core.cloud import Call, answers
from localcloud.core.errors import AwsError


class Template(LaunchTemplate):
    def __init__(self, backend: Any, name: str, created_by: str, created: Any) -> None:
        self.ec2_backend = backend
        self.name = name
        self.id = new_id("lt")
        self.create_time = created
        self.created_by = created_by
        self.versions = []
        self.default_version_number = 1
        self.next_number = 1

    def add(self, data: Mapping[str, Any], description: str, created_by: str, created: Any) -> Any:
        version: Any = LaunchTemplateVersion(self, self.next_number, dict(data), description)
        version.create_time, version.created_by = created, created_by
        self.next_number += 1
        self.versions.append(version)
        return version


def _described(region: str, template: Any) -> dict[str, Any]:
    return {
        "CreateTime": spelled(template.create_time),
        "CreatedBy": template.created_by,
        "DefaultVersionNumber": template.default_version_number,
        "LatestVersionNumber": template.versions[-1].number,
        "LaunchTemplateId": template.id,
        "LaunchTemplateName": template.name,
        "Tags": tag_list(tags_in(region, template.id)),
    }


def _version(version: Any) -> dict[str, Any]:
    described = {
        "CreateTime": spelled(version.create_time),
        "CreatedBy": version.created_by,
        "DefaultVersion": version.number == version.template.default_version_number,
        "LaunchTemplateData": version.data,
        "LaunchTemplateId": version.template.id,
        "LaunchTemplateName": version.template.name,
        "VersionNumber": version.number,
    }
    return described | ({"VersionDescription": version.description} if version.description else {})


def _data(params: Mapping[str, Any]) -> dict[str, Any]:
    data = {
        key: value for key, value in (params.get("LaunchTemplateData") or {}).items() if value not in (None, [], {})
    }
    if data.get("UserData"):
        try:
            base64.b64decode(data["UserData"])
        except (binascii.Error, ValueError) as error:
            raise AwsError("InvalidUserData.Malformed", "Invalid BASE64 encoding of user data.") from error
    return data


@answers("ec2", "CreateLaunchTemplate")
def create_launch_template(call: Call) -> dict[str, Any]:
    params, backend = call.params, backend_of(call.region)
    name = str(params.get("LaunchTemplateName") or "")
    if not 3 <= len(name) <= 128 or not all(char.isalnum() or char in "()./_-" for char in name):
        raise AwsError(
            "InvalidLaunchTemplateName.MalformedException",
            "A launch template name must be between 3 and 128 characters, and may contain letters, numbers, and the "
            "following characters: - ( ) . / _.",
        )
    if not params.get("LaunchTemplateData"):
        raise AwsError("MissingParameter", "The request must contain the parameter LaunchTemplateData")
    template = once(call, lambda made: made.id in backend.launch_templates, lambda: _create(call, name))
    return {"LaunchTemplate": _described(call.region, template)}


def _create(call: Call, name: str) -> Any:
    params, backend = call.params, backend_of(call.region)
    if name in backend.launch_template_name_to_ids:
        raise AwsError("InvalidLaunchTemplateName.AlreadyExistsException", "Launch template name already in use.")
    data = _data(params)
    refuse_dry_run(params)
    moment = now(call.cloud)
    make: Any = Template  # abstract to mypy: moto leaves out what only CloudFormation would call
    template = make(backend, name, call.caller.arn, moment)
    template.add(data, str(params.get("VersionDescription") or ""), call.caller.arn, moment)
    backend.launch_templates[template.id] = template
    backend.launch_template_name_to_ids[name] = template.id
    backend.launch_template_insert_order.append(template.id)
    set_tags(call.region, template.id, tags_of(params, "launch-template"))
    return template


@answers("ec2", "CreateLaunchTemplateVersion")
def create_launch_template_version(call: Call) -> dict[str, Any]:
    template = template_of(call.region, call.params)
    version = once(call, lambda made: made.template is template, lambda: _add_version(call, template))
    return {"LaunchTemplateVersion": _version(version)}


def _add_version(call: Call, template: Any) -> Any:
    params, data = call.params, _data(call.params)
    if params.get("SourceVersion"):
        data = {**numbered(template, str(params["SourceVersion"])).data, **data}
    refuse_dry_run(params)
    return template.add(data, str(params.get("VersionDescription") or ""), call.caller.arn, now(call.cloud))


@answers("ec2", "ModifyLaunchTemplate")
def modify_launch_template(call: Call) -> dict[str, Any]:
    template = template_of(call.region, call.params)
    requested = call.params.get("DefaultVersion") or call.params.get("SetDefaultVersion")
    refuse_dry_run(call.params)
    if requested:
        template.default_version_number = numbered(template, str(requested)).number
    return {"LaunchTemplate": _described(call.region, template)}


@answers("ec2", "DeleteLaunchTemplate")
def delete_launch_template(call: Call) -> dict[str, Any]:
    template, backend = template_of(call.region, call.params), backend_of(call.region)
    refuse_dry_run(call.params)
    described = _described(call.region, template)
    del backend.launch_templates[template.id]
    del backend.launch_template_name_to_ids[template.name]
    backend.launch_template_insert_order.remove(template.id)
    backend.tags.pop(template.id, None)
    return {"LaunchTemplate": described}


_LIMITS: dict[str, Any] = {"minimum": 1, "maximum": 200, "default": 200}


@answers("ec2", "DescribeLaunchTemplates")
def describe_launch_templates(call: Call) -> dict[str, Any]:
    ids, names = call.params.get("LaunchTemplateIds") or (), call.params.get("LaunchTemplateNames") or ()
    matches = [template_of(call.region, {"LaunchTemplateId": key}) for key in ids]
    matches += [template_of(call.region, {"LaunchTemplateName": name}) for name in names]
    if not ids and not names:
        matches = list(backend_of(call.region).launch_templates.values())
    described = [_described(call.region, template) for template in matches]
    return listing(call, "LaunchTemplates", described, **_LIMITS)


@answers("ec2", "DescribeLaunchTemplateVersions")
def describe_launch_template_versions(call: Call) -> dict[str, Any]:
    params = call.params
    requested = [str(version) for version in params.get("Versions") or ()]
    matches = _versions(template_of(call.region, params), requested, params)
    return listing(call, "LaunchTemplateVersions", map(_version, matches), **_LIMITS)


def _versions(template: Any, requested: Iterable[str], params: Mapping[str, Any]) -> list[Any]:
    """Return the versions in the request, or all between its bounds, the newest first as in AWS."""
    named = list(requested)
    if named:
        return list(dict.fromkeys(numbered(template, version) for version in named))
    minimum, maximum = int(params.get("MinVersion") or 1), int(params.get("MaxVersion") or template.next_number)
    return [version for version in reversed(template.versions) if minimum <= version.number <= maximum]
