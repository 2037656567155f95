"""EMR on machines: bootstrap actions come from S3, run as hadoop with the node's own role, and leave logs."""

from __future__ import annotations

import gzip
import json
from typing import Any

from localcloud.testing.booted import Clients, Network, wait_for

BOOT = """#!/bin/bash
set -e
whoami
sudo whoami
cat /mnt/var/lib/info/instance.json /mnt/var/lib/info/job-flow.json > ~/info
echo "$1" > ~/argument
if ! grep -q '"isMaster": true' /mnt/var/lib/info/instance.json && [ -n "$2" ]; then
    echo "no luck on a core node" >&2
    exit 3
fi
"""


def start(network: Network, bucket: str, cores: int, *args: str) -> str:
    groups = [
        {"InstanceRole": "MASTER", "InstanceType": "m5.xlarge", "InstanceCount": 1},
        {"InstanceRole": "CORE", "InstanceType": "m5.xlarge", "InstanceCount": cores},
    ]
    action = {"Name": "boot", "ScriptBootstrapAction": {"Path": f"s3://{bucket}/boot.sh", "Args": list(args)}}
    started = network.cloud.emr.run_job_flow(
        Name=network.name,
        ReleaseLabel="emr-7.14.0",
        LogUri=f"s3://{bucket}/emr-logs/",
        Instances={
            "InstanceGroups": groups,
            "Ec2SubnetId": network.public,
            "Ec2KeyName": "tester",
            "KeepJobFlowAliveWhenNoSteps": True,
            "AdditionalMasterSecurityGroups": [network.group],
            "AdditionalSlaveSecurityGroups": [network.group],
        },
        BootstrapActions=[action],
        JobFlowRole=network.name,
        ServiceRole=f"{network.name}-emr",
    )
    return str(started["JobFlowId"])


def status(cloud: Clients, cluster: str) -> dict[str, Any]:
    described: dict[str, Any] = cloud.emr.describe_cluster(ClusterId=cluster)["Cluster"]["Status"]
    return described


def nodes(cloud: Clients, cluster: str, role: str) -> list[str]:
    listed = cloud.emr.list_instances(ClusterId=cluster, InstanceGroupTypes=[role])["Instances"]
    return [node["Ec2InstanceId"] for node in listed]


def log(cloud: Clients, bucket: str, cluster: str, node: str, name: str) -> str:
    key = f"emr-logs/{cluster}/node/{node}/bootstrap-actions/1/{name}.gz"
    return gzip.decompress(cloud.s3.get_object(Bucket=bucket, Key=key)["Body"].read()).decode()


def test_bootstrap_actions_run_as_hadoop_and_a_failed_one_ends_the_cluster(network: Network) -> None:
    cloud, bucket = network.cloud, f"{network.name}-bucket"
    cloud.ec2.modify_subnet_attribute(SubnetId=network.public, MapPublicIpOnLaunch={"Value": True})
    cloud.s3.create_bucket(Bucket=bucket)
    cloud.s3.put_object(Bucket=bucket, Key="boot.sh", Body=BOOT.encode())
    cloud.role(
        network.name,
        {"Effect": "Allow", "Action": "s3:GetObject", "Resource": f"arn:aws:s3:::{bucket}/boot.sh"},
        {"Effect": "Allow", "Action": "s3:PutObject", "Resource": f"arn:aws:s3:::{bucket}/emr-logs/*"},
        {"Effect": "Allow", "Action": "elasticmapreduce:ListInstances", "Resource": "*"},
    )
    trust = {"Effect": "Allow", "Principal": {"Service": "elasticmapreduce.amazonaws.com"}, "Action": "sts:AssumeRole"}
    document = json.dumps({"Version": "2012-10-17", "Statement": [trust]})
    cloud.iam.create_role(RoleName=f"{network.name}-emr", AssumeRolePolicyDocument=document)
    launch = {"Effect": "Allow", "Action": ["ec2:*", "iam:PassRole"], "Resource": "*"}
    document = json.dumps({"Version": "2012-10-17", "Statement": [launch]})
    cloud.iam.put_role_policy(RoleName=f"{network.name}-emr", PolicyName="launch", PolicyDocument=document)

    good, bad = start(network, bucket, 1, "a word"), start(network, bucket, 1, "a word", "fail")
    wait_for(lambda: status(cloud, good)["State"] == "WAITING", 120, "the cluster is ready")
    [master], [core] = nodes(cloud, good, "MASTER"), nodes(cloud, good, "CORE")
    assert log(cloud, bucket, good, core, "stdout") == "hadoop\nroot\n"
    assert "exit code 0" in log(cloud, bucket, good, core, "controller")

    # A person, and a script that asks YARN for the nodes, find what they find in EMR.
    def says(*words: str) -> str:
        return network.says(master, *words, user="hadoop")

    assert says("sudo", "whoami") == "root"
    assert says("cat", "argument") == "a word"
    assert good in says("cat", "info")
    name, address = (cloud.instance(core)[key] for key in ("PrivateDnsName", "PrivateIpAddress"))
    assert says("yarn node -list | awk '/RUNNING/ {print $1}'") == f"{name}:8041"
    assert says(f"nslookup {name} | awk '/^Address: / {{print $2}}'") == address

    # One failed action is enough; its log says why.
    wait_for(lambda: status(cloud, bad)["State"] == "TERMINATED_WITH_ERRORS", 120, "the cluster has ended")
    [failed] = nodes(cloud, bad, "CORE")
    message = f"On 1 slave instances (including {failed}), bootstrap action 1 returned a non-zero return code"
    assert status(cloud, bad)["StateChangeReason"] == {"Code": "BOOTSTRAP_FAILURE", "Message": message}
    assert log(cloud, bucket, bad, failed, "stderr") == "no luck on a core node\n"

    cloud.emr.terminate_job_flows(JobFlowIds=[good])
    wait_for(lambda: status(cloud, good)["State"] == "TERMINATED", 120, "the cluster is terminated")
