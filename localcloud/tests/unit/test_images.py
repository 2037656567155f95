"""Images, and the parameters that name them."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from localcloud.api.ec2.images import API_ONLY, BASE, Image, images_of, path_of, register
from localcloud.api.ec2.views import instance_views
from localcloud.core.cloud import Cloud
from localcloud.core.errors import Refusal
from localcloud.core.settings import SUITE, SUITES
from localcloud.image.build import feature_image
from localcloud.image.features import FEATURES
from localcloud.image.recipe import base_hash
from localcloud.image.recipes import Feature
from localcloud.machines.nspawn import files_for
from localcloud_kits.ec2_kit import Ec2, Recorder

UBUNTU = "/aws/service/deeplearning/ami/x86_64/base-oss-nvidia-driver-gpu-ubuntu-22.04/latest/ami-id"
RELEASES = {"bullseye": 11, "bookworm": 12, "trixie": 13}


def test_ids_are_the_same_always_and_everywhere() -> None:
    assert BASE.id == "ami-004d0dbcf26383867"
    assert Image("x", ("b", "a")).id == Image("x", ("a", "b"), Path("/else")).id != Image("x").id


@pytest.mark.parametrize("suite", SUITES)
def test_the_images_of_another_release_have_names_and_files_of_their_own(suite: str) -> None:
    program = "from localcloud.core.settings import image_with; from localcloud.image.recipe import base_hash"
    words = [sys.executable, "-c", f"{program}; print(image_with(['mxnet', 'pytorch']), base_hash())"]
    printed = subprocess.check_output(words, env={**os.environ, "LOCALCLOUD_SUITE": suite}, text=True)
    other, its_hash = printed.split()
    assert other == f"localcloud-debian-{RELEASES[suite]}-mxnet-pytorch"
    assert (its_hash == base_hash()) is (suite == SUITE)


def test_an_unknown_feature_of_an_image_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(FEATURES, "mxnet", Feature("1.9", lambda _root: None))
    with pytest.raises(Refusal, match="^image feature caffe does not exist; choose from mxnet"):
        feature_image(tmp_path, ["mxnet", "caffe"], print)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("region", ["us-east-1", "ap-southeast-2"])
def test_ours_and_no_others_in_every_region(ec2: Ec2, region: str) -> None:
    result = {image["Name"]: image for image in ec2("DescribeImages", region=region)["Images"]}
    assert {"localcloud-debian-12", "localcloud-api-only"} <= set(result)
    assert all(name.startswith(("localcloud-", "Deep Learning ")) for name in result)
    base = result["localcloud-debian-12"]
    assert base["ImageId"] == BASE.id
    assert (base["Architecture"], base["State"], base["RootDeviceName"]) == ("x86_64", "available", "/dev/sda1")
    assert base["ImageOwnerAlias"] == "amazon"
    assert ec2("DescribeSnapshots", region=region)["Snapshots"] == []


@pytest.mark.parametrize(
    ("params", "names"),
    [
        ({"ImageIds": [API_ONLY.id]}, ["localcloud-api-only"]),
        ({"Filters": [{"Name": "name", "Values": ["localcloud-*"]}]}, ["localcloud-debian-12", "localcloud-api-only"]),
        (
            {"Owners": ["amazon"], "Filters": [{"Name": "name", "Values": ["Deep Learning Base*(Ubuntu 22.04)*"]}]},
            ["Deep Learning Base OSS Nvidia Driver GPU AMI (Ubuntu 22.04) 20261016"],
        ),
        ({"Owners": ["self"]}, []),
        ({"Filters": [{"Name": "architecture", "Values": ["arm64"]}]}, []),
    ],
)
def test_choosing(ec2: Ec2, params: dict[str, Any], names: list[str]) -> None:
    assert [image["Name"] for image in ec2("DescribeImages", **params)["Images"]] == names


def test_a_deprecated_image_is_shown_to_its_owner_and_to_who_asks_for_it(ec2: Ec2, cloud: Cloud) -> None:
    register(cloud, own := Image("localcloud-own"))
    for image in (BASE, own):
        cloud.faults.add("deprecate-image", {"image": image.id})

    def shown(**params: Any) -> dict[str, str | None]:
        described = ec2("DescribeImages", **params)["Images"]
        return {
            image["ImageId"]: image.get("DeprecationTime")
            for image in described
            if image["ImageId"] in (BASE.id, own.id)
        }

    by_filter = [{"Name": "image-id", "Values": [BASE.id]}]
    assert shown() == {own.id: own.created} and shown(Filters=by_filter) == {}
    assert shown(ImageIds=[BASE.id]) == shown(Filters=by_filter, IncludeDeprecated=True) == {BASE.id: BASE.created}
    assert ec2.run(ImageId=BASE.id)["Instances"]


@pytest.mark.parametrize(("name", "user"), [("*(Ubuntu 22.04)*", ""), ("*(Amazon Linux 2023)*", "ec2-user")])
def test_machines_have_the_user_of_their_image(cloud: Cloud, ec2: Ec2, name: str, user: str) -> None:
    (image, *_others) = ec2("DescribeImages", Filters=[{"Name": "name", "Values": [name]}])["Images"]
    ec2.run(ImageId=image["ImageId"])
    (view,) = instance_views(cloud)
    _mode, content = files_for(view).get("/etc/cloud/cloud.cfg.d/10-user.cfg", (0, b"{}"))
    assert yaml.safe_load(content) == ({"system_info": {"default_user": {"name": user}}} if user else {})


@pytest.mark.parametrize(
    ("name", "device", "imds", "tokens", "hops"),
    [
        ("*(Ubuntu 22.04)*", "/dev/sda1", None, "optional", 1),
        ("*(Amazon Linux 2023)*", "/dev/xvda", "v2.0", "required", 2),
    ],
)
def test_images_have_the_root_devices_and_metadata_versions_of_aws(
    ec2: Ec2, name: str, device: str, imds: str | None, tokens: str, hops: int
) -> None:
    filters = [
        {"Name": "name", "Values": [name]},
        {"Name": "root-device-name", "Values": [device]},
        {"Name": "block-device-mapping.volume-size", "Values": ["75"]},
    ]
    image = ec2("DescribeImages", Filters=filters)["Images"][0]
    [disk] = image["BlockDeviceMappings"]
    assert (image["RootDeviceName"], disk["DeviceName"], disk["Ebs"]["VolumeSize"]) == (device, device, 75)
    assert image.get("ImdsSupport") == imds
    smaller = [{"DeviceName": device, "Ebs": {"VolumeSize": 74}}]
    with ec2.refused("InvalidBlockDeviceMapping", "expect size >= 75GB"):
        ec2.run(ImageId=image["ImageId"], BlockDeviceMappings=smaller)
    [instance] = ec2.run(ImageId=image["ImageId"])["Instances"]
    [volume] = ec2("DescribeVolumes")["Volumes"]
    assert (instance["RootDeviceName"], volume["Size"]) == (device, 75)
    options = instance["MetadataOptions"]
    assert (options["HttpTokens"], options["HttpPutResponseHopLimit"]) == (tokens, hops)
    [own] = ec2.run(ImageId=image["ImageId"], MetadataOptions={"HttpPutResponseHopLimit": 3})["Instances"]
    assert own["MetadataOptions"]["HttpTokens"] == tokens
    assert own["MetadataOptions"]["HttpPutResponseHopLimit"] == 3
    data = {"MetadataOptions": {"HttpTokens": "optional", "HttpPutResponseHopLimit": 5}}
    template = ec2("CreateLaunchTemplate", LaunchTemplateName="metadata", LaunchTemplateData=data)["LaunchTemplate"]
    reference = {"LaunchTemplateId": template["LaunchTemplateId"]}
    [templated] = ec2.run(ImageId=image["ImageId"], LaunchTemplate=reference)["Instances"]
    options = templated["MetadataOptions"]
    assert (options["HttpTokens"], options["HttpPutResponseHopLimit"]) == ("optional", 5)


@pytest.mark.parametrize(
    ("image", "code"), [("ami-0123456789abcdef0", "InvalidAMIID.NotFound"), ("debian", "InvalidAMIID.Malformed")]
)
def test_images_that_are_none(ec2: Ec2, image: str, code: str) -> None:
    with ec2.refused(code):
        ec2("DescribeImages", ImageIds=[image])


def test_files_of_an_image(ec2: Ec2, cloud: Cloud) -> None:
    torch = next(image for image in ec2("DescribeImages")["Images"] if "PyTorch 2.9 (Ubuntu 24.04)" in image["Name"])[
        "ImageId"
    ]
    assert path_of(cloud, BASE.id) is None
    register(cloud, Image(BASE.name, path=Path("/base"), owner=BASE.owner, family=BASE.family))
    built = Image("localcloud-debian-12-pytorch", ("pytorch",), family="localcloud-debian-12-pytorch")
    assert path_of(cloud, torch) == Path("/base")
    register(cloud, Image(built.name, built.features, Path("/torch"), family=built.family))
    assert [path_of(cloud, key) for key in (BASE.id, torch, built.id)] == [
        Path("/base"),
        Path("/torch"),
        Path("/torch"),
    ]
    assert path_of(cloud, "ami-0") is None
    assert ec2("DescribeImages", ImageIds=[built.id])["Images"][0]["OwnerId"] == "123456789012"
    name = "/aws/service/deeplearning/ami/x86_64/localcloud-debian-12-pytorch/latest/ami-id"
    assert ec2("GetParameter", service="ssm", Name=name)["Parameter"]["Value"] == built.id


def test_parameters_name_images_that_can_be_launched(ec2: Ec2) -> None:
    answer = ec2("GetParametersByPath", service="ssm", Path="/aws/service/deeplearning", Recursive=True, MaxResults=10)
    more = ec2(
        "GetParametersByPath",
        service="ssm",
        Path="/aws/service/deeplearning/",
        Recursive=True,
        MaxResults=10,
        NextToken=answer["NextToken"],
    )
    result = {parameter["Name"]: parameter["Value"] for parameter in answer["Parameters"] + more["Parameters"]}
    assert UBUNTU in result
    for value in result.values():
        assert ec2.run(ImageId=value)


def test_a_parameter_by_itself_and_among_others(ec2: Ec2) -> None:
    parameter = ec2("GetParameter", service="ssm", Name=UBUNTU)["Parameter"]
    assert parameter["ARN"] == f"arn:aws:ssm:us-east-1::parameter{UBUNTU}"
    with ec2.refused("ParameterNotFound"):
        ec2("GetParameter", service="ssm", Name="/aws/service/deeplearning/ami/x86_64/windows/latest/ami-id")
    ec2("PutParameter", service="ssm", Name="/mine", Value="v", Type="String")
    assert ec2("GetParameter", service="ssm", Name="/mine")["Parameter"]["Value"] == "v"
    names = ["/mine", "/yours", UBUNTU, "/aws/service/ami-amazon-linux-latest/al2023-ami-kernel-6.1-x86_64"]
    answer = ec2("GetParameters", service="ssm", Names=names)
    assert [parameter["Name"] for parameter in answer["Parameters"]] == ["/mine", UBUNTU]
    assert answer["InvalidParameters"] == ["/yours", names[3]]
    assert ec2("GetParametersByPath", service="ssm", Path="/")["Parameters"][0]["Name"] == "/mine"


def test_an_image_of_a_stopped_instance(ec2: Ec2, cloud: Cloud, machines: Recorder) -> None:
    instance = ec2.running()
    tags = [{"ResourceType": kind, "Tags": [{"Key": "a", "Value": kind}]} for kind in ("image", "snapshot")]
    request = {"InstanceId": instance["InstanceId"], "Name": "mine", "TagSpecifications": tags}
    with ec2.refused("IncorrectState", "stopped"):
        ec2("CreateImage", **request)
    ec2.stopped(instance)
    mapping = [{"DeviceName": "/dev/sdf", "Ebs": {"SnapshotId": "snap-0123456789abcdef0"}}]
    with ec2.refused("InvalidParameterValue", "the root disk alone"):
        ec2("CreateImage", **request, BlockDeviceMappings=mapping)
    image_id = ec2("CreateImage", **request)["ImageId"]
    with ec2.refused("InvalidAMIName.Duplicate"):
        ec2("CreateImage", **request)
    pending = [{"Name": "state", "Values": ["pending"]}]
    assert [image["Name"] for image in ec2("DescribeImages", Filters=pending)["Images"]] == ["mine"]
    with ec2.refused("InvalidAMIID.Unavailable"):
        ec2.run(ImageId=image_id)
    machines.copied((Path("/copy"), Path("/base")))
    ec2.clock.advance(1)
    [image] = ec2("DescribeImages", Owners=["self"])["Images"]
    assert (image["State"], image["Tags"]) == ("available", [{"Key": "a", "Value": "image"}])
    assert images_of(cloud)[image_id].layers == (Path("/copy"), Path("/base"))
    assert not [image for image in ec2("DescribeImages", region="eu-west-1")["Images"] if image["Name"] == "mine"]
    assert ec2.run(ImageId=image_id)["Instances"][0]["ImageId"] == image_id
    assert ec2("DescribeImageAttribute", ImageId=image_id, Attribute="launchPermission")["LaunchPermissions"] == []
    # Its snapshot outlives it.
    [snapshot] = ec2("DescribeSnapshots", Filters=[{"Name": "tag:a", "Values": ["snapshot"]}])["Snapshots"]
    assert snapshot["SnapshotId"] == image["BlockDeviceMappings"][0]["Ebs"]["SnapshotId"]
    with ec2.refused("InvalidSnapshot.InUse"):
        ec2("DeleteSnapshot", SnapshotId=snapshot["SnapshotId"])
    ec2("DeregisterImage", ImageId=image_id)
    assert ec2.tags_of(image_id) == {} != ec2.tags_of(snapshot["SnapshotId"])
    ec2("DeleteSnapshot", SnapshotId=snapshot["SnapshotId"])
    assert ec2("DescribeSnapshots")["Snapshots"] == [] and ec2.tags_of(snapshot["SnapshotId"]) == {}
    with ec2.refused("InvalidAMIID.NotFound"):
        ec2.run(ImageId=image_id)
