"""Launch templates: the version that a launch uses, and the merged data of template and request."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from localcloud.api.ec2.filters import tag_list
from localcloud.api.ec2.moto_records import backend_of
from localcloud.core.errors import AwsError
from localcloud.core.words import aws_error

# What a template and a request may both give in part: the request's part counts field by field.
_BY_FIELD = ("MetadataOptions", "Placement", "Monitoring", "CreditSpecification", "CpuOptions")


def version_of(region: str, specification: Mapping[str, Any]) -> Any:
    """moto's record of the version that {LaunchTemplateId or LaunchTemplateName, Version} names."""
    return numbered(template_of(region, specification), str(specification.get("Version") or "$Default"))


def template_of(region: str, specification: Mapping[str, Any]) -> Any:
    backend = backend_of(region)
    template_id, name = specification.get("LaunchTemplateId"), specification.get("LaunchTemplateName")
    if bool(template_id) == bool(name):
        raise AwsError(
            "InvalidParameterCombination" if template_id else "MissingParameter",
            "Specify either a launch template ID or a launch template name in the request, and not both.",
        )
    if name:
        template_id = backend.launch_template_name_to_ids.get(name)
        if template_id is None:
            raise aws_error("ec2:*", "InvalidLaunchTemplateName.NotFoundException")
    template = backend.launch_templates.get(template_id)
    if template is None:
        raise aws_error("ec2:*", "InvalidLaunchTemplateId.NotFound", id=template_id)
    return template


def numbered(template: Any, requested: str) -> Any:
    """Return a version of a template by its number, $Latest or $Default."""
    if requested == "$Latest":
        return template.versions[-1]
    expected = str(template.default_version_number) if requested == "$Default" else requested
    match = next((version for version in template.versions if str(version.number) == expected), None)
    if match is None:
        raise aws_error("ec2:*", "InvalidLaunchTemplateId.VersionNotFound", version=requested, id=template.id)
    return match


def merged(request: Mapping[str, Any], template: Mapping[str, Any]) -> dict[str, Any]:
    """Merge two sets of launch data; values of the request have precedence."""
    whole = {key: value for key, value in template.items() if value not in (None, [], {}, "")}
    for key, value in request.items():
        if value in (None, [], {}, "") or key == "LaunchTemplate":
            continue
        if key in _BY_FIELD and key in whole:
            whole[key] = {**whole[key], **value}
        elif key == "BlockDeviceMappings":
            whole[key] = _by_device(whole.get(key) or (), value)
        elif key == "TagSpecifications":
            whole[key] = _joined_tags(whole.get(key) or (), value)
        else:
            whole[key] = value
    return whole


def _by_device(first: Any, second: Any) -> list[Mapping[str, Any]]:
    """Merge two lists of devices: for a device in both, the second has precedence."""
    devices = {mapping["DeviceName"]: mapping for mapping in first}
    for mapping in second:
        before = devices.get(mapping["DeviceName"], {})
        ebs = {**before.get("Ebs", {}), **mapping.get("Ebs", {})}
        devices[mapping["DeviceName"]] = {**before, **mapping, "Ebs": ebs}
    return list(devices.values())


def _joined_tags(first: Any, second: Any) -> list[dict[str, Any]]:
    tags: dict[str, dict[str, str]] = {}
    for specification in [*first, *second]:
        of_type = tags.setdefault(str(specification.get("ResourceType")), {})
        of_type |= {str(tag["Key"]): str(tag.get("Value") or "") for tag in specification.get("Tags") or ()}
    return [{"ResourceType": kind, "Tags": tag_list(of_type)} for kind, of_type in tags.items()]
