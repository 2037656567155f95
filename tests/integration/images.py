"""An image of a machine that has run a script."""

from __future__ import annotations

from localcloud.testing.booted import wait_for
from tests.integration.machines import Cloud


def image_after(script: str, cloud: Cloud, base: str, name: str) -> str:
    """Return the id of the image of a machine that has run a script, whose last command turns the machine off."""
    ec2 = cloud.client("ec2")
    [machine] = ec2.run_instances(ImageId=base, InstanceType="t3.micro", MinCount=1, MaxCount=1, UserData=script)[
        "Instances"
    ]
    instance = [machine["InstanceId"]]

    def state(of: str) -> bool:
        [reservation] = ec2.describe_instances(InstanceIds=instance)["Reservations"]
        return bool(reservation["Instances"][0]["State"]["Name"] == of)

    def available() -> bool:
        return bool(ec2.describe_images(ImageIds=[image])["Images"][0]["State"] == "available")

    try:
        wait_for(lambda: state("stopped"), 120, "the script of the machine")
        image = str(ec2.create_image(InstanceId=instance[0], Name=name)["ImageId"])
        wait_for(available, 120, "the image")
    finally:
        ec2.terminate_instances(InstanceIds=instance)
    return image
