"""Rules, as they are met from inside a machine with its role's credentials."""

from __future__ import annotations

import json

from localcloud.testing.booted import Network, localcloud, wait_for

_AWS = 'python3 -c "import boto3; print({})"'


def ask(expression: str) -> str:
    return _AWS.format(expression.replace("boto3.client(", "boto3.client(region_name='us-east-1', service_name="))


def test_a_machine_may_do_what_its_role_may_while_its_credentials_last(network: Network) -> None:
    cloud = network.cloud
    bucket = f"{network.name}-bucket"
    cloud.s3.create_bucket(Bucket=bucket)
    own = f"arn:aws:s3:::{bucket}/members/${{aws:userid}}/*"
    cloud.role(network.name, {"Effect": "Allow", "Action": "s3:PutObject", "Resource": own})
    first, second = network.launch(2, IamInstanceProfile={"Name": network.name})
    describe = ask("len(boto3.client('ec2').describe_instances()['Reservations'])")

    refused = network.ssh(first, describe)
    assert "UnauthorizedOperation" in refused.stderr
    assert "is not authorized to perform: ec2:DescribeInstances" in refused.stderr
    tag = {"StringEquals": {"aws:ResourceTag/mine": "yes"}}
    cloud.allow(
        network.name,
        {"Effect": "Allow", "Action": "s3:PutObject", "Resource": own},
        {"Effect": "Allow", "Action": "ec2:DescribeInstances", "Resource": "*"},
        {"Effect": "Allow", "Action": "ec2:CreateTags", "Resource": "*", "Condition": tag},
    )
    assert int(network.says(first, describe)) >= 1

    # A permission that is bound to a tag ends where the tag does.
    cloud.ec2.create_tags(Resources=[first], Tags=[{"Key": "mine", "Value": "yes"}])
    rank = "boto3.client('ec2').create_tags(Resources=['{}'], Tags=[dict(Key='rank', Value='1')])['ResponseMetadata']"
    assert "200" in network.says(first, ask(rank.format(first)))
    assert "UnauthorizedOperation" in network.ssh(first, ask(rank.format(second))).stderr

    # The policy variable holds the instance's id: its own prefix, and no other's.
    role_id = cloud.iam.get_role(RoleName=network.name)["Role"]["RoleId"]
    put = "boto3.client('s3').put_object(Bucket='{}', Key='members/{}:{}/report.json', Body=b'ok')['ETag']"
    network.says(first, ask(put.format(bucket, role_id, first)))
    assert "AccessDenied" in network.ssh(first, ask(put.format(bucket, role_id, second))).stderr
    assert cloud.s3.list_objects_v2(Bucket=bucket)["KeyCount"] == 1

    # All of that is in the log: who, what was needed on what, and what came of it.
    lines = [json.loads(line) for line in localcloud("calls", "--json", "--since", "5m").stdout.splitlines()]
    mine = [line for line in lines if line["caller"].endswith(f":assumed-role/{network.name}/{first}")]
    outcomes = {(line["action"], line["result"]) for line in mine}
    assert {
        ("ec2:DescribeInstances", "UnauthorizedOperation"),
        ("ec2:DescribeInstances", "ok"),
        ("ec2:CreateTags", "ok"),
        ("ec2:CreateTags", "UnauthorizedOperation"),
        ("s3:PutObject", "ok"),
        ("s3:PutObject", "AccessDenied"),
    } <= outcomes
    written = next(line for line in mine if (line["action"], line["result"]) == ("s3:PutObject", "ok"))
    assert written["required"][0]["resource"] == f"arn:aws:s3:::{bucket}/members/{role_id}:{first}/report.json"

    # Expired credentials are refused until the fault is cleared.
    who = ask("boto3.client('sts').get_caller_identity()['Arn']")
    network.says(first, who)
    assert localcloud("fault", "expire", first).returncode == 0
    assert "ExpiredToken" in network.ssh(first, who).stderr
    assert localcloud("fault", "clear").returncode == 0
    wait_for(lambda: network.ssh(first, who).returncode == 0, 120, "credentials are good again")
