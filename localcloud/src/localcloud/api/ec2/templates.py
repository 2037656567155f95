"""Launch templates and their versions: moto's records, with what moto's operations lack: tags that come later, pages,
the version that another is made from."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from localcloud.api.ec2.errors import missing
from localcloud.api.ec2.filters import listing, refuse_dry_run, tag_list, tags_of
from localcloud.api.ec2.launch_data import numbered, template_of
from localcloud.api.ec2.moto_records import backend_of, spelled, tags_in
from localcloud.api.ec2.records import now, once
from localcloud.api.ec2.run_request import check_user_data
from localcloud.core.cloud import Call, answers
from localcloud.core.errors import AwsError


def _described(region: str, template: Any) -> dict[str, Any]:
    return {
        "CreateTime": spelled(template.versions[0].create_time),
        "CreatedBy": template.versions[0].created_by,
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
    check_user_data(data.get("UserData"))
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
        raise missing("LaunchTemplateData")
    template = once(call, lambda made: made.id in backend.launch_templates, lambda: _create(call, name))
    return {"LaunchTemplate": _described(call.region, template)}


def _create(call: Call, name: str) -> Any:
    params, backend = call.params, backend_of(call.region)
    if name in backend.launch_template_name_to_ids:
        raise AwsError("InvalidLaunchTemplateName.AlreadyExistsException", "Launch template name already in use.")
    data = _data(params)
    refuse_dry_run(params)
    tags = {"launch-template": tags_of(params, "launch-template")}
    template = backend.create_launch_template(name, str(params.get("VersionDescription") or ""), data, tags)
    _sign(call, template.versions[0])
    return template


def _sign(call: Call, version: Any) -> Any:
    version.create_time, version.created_by = now(call.cloud), call.caller.arn
    return version


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
    return _sign(call, template.create_version(data, str(params.get("VersionDescription") or "")))


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
    backend.delete_launch_template(template.name, None)
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
    template = template_of(call.region, params)
    matches = list(dict.fromkeys(numbered(template, str(version)) for version in params.get("Versions") or ()))
    if not matches:  # all between the request's bounds, the newest first as in AWS
        minimum, maximum = int(params.get("MinVersion") or 1), int(params.get("MaxVersion") or len(template.versions))
        matches = template.versions[minimum - 1 : maximum][::-1]
    return listing(call, "LaunchTemplateVersions", map(_version, matches), **_LIMITS)
