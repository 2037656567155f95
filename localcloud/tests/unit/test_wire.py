"""What a client of AWS gets over HTTP where an answer must look just so: documents, times, errors."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from typing import Any

import boto3
import pytest
from botocore.config import Config
from botocore.exceptions import ClientError

from localcloud.api import s3
from localcloud.api.iam import identities as iam
from localcloud.core.cloud import Cloud
from localcloud.endpoint.front import Front
from localcloud.endpoint.server import HttpServer
from localcloud.testing.clock import ManualClock

assert s3
TRUST = {
    "Version": "2012-10-17",
    "Statement": [
        {
            "Effect": "Allow",
            "Principal": {"AWS": "arn:aws:iam::123456789012:root"},
            "Action": "sts:AssumeRole",
        }
    ],
}


@pytest.fixture
def clock() -> ManualClock:
    """Clients sign with the time that it really is."""
    return ManualClock(time.time())


@pytest.fixture
def session(cloud: Cloud) -> Iterator[Any]:
    """What makes clients for the operator: `session("iam")`."""
    key, secret = iam.bootstrap(cloud)
    server = HttpServer(Front(cloud), "127.0.0.1", 0)
    server.start()

    def client(service: str, **credentials: str) -> Any:
        return boto3.client(
            service,
            endpoint_url=f"http://127.0.0.1:{server.port}",
            region_name="us-east-1",
            config=Config(retries={"total_max_attempts": 1}, s3={"addressing_style": "path"}),
            **{"aws_access_key_id": key, "aws_secret_access_key": secret, **credentials},
        )

    yield client
    server.stop()


def test_policy_documents_arrive_as_they_were_sent(session: Any) -> None:
    client = session("iam")
    document = {"Version": "2012-10-17", "Statement": [{"Effect": "Allow", "Action": "s3:*", "Resource": "*"}]}
    made = client.create_role(RoleName="worker", AssumeRolePolicyDocument=json.dumps(TRUST))["Role"]
    client.put_role_policy(RoleName="worker", PolicyName="p", PolicyDocument=json.dumps(document))
    client.create_instance_profile(InstanceProfileName="profile")
    client.add_role_to_instance_profile(InstanceProfileName="profile", RoleName="worker")
    profile = client.get_instance_profile(InstanceProfileName="profile")["InstanceProfile"]
    assert made["AssumeRolePolicyDocument"] == TRUST
    assert client.get_role(RoleName="worker")["Role"]["AssumeRolePolicyDocument"] == TRUST
    assert profile["Roles"][0]["AssumeRolePolicyDocument"] == TRUST
    assert client.get_role_policy(RoleName="worker", PolicyName="p")["PolicyDocument"] == document
    with pytest.raises(ClientError, match="DeleteConflict") as caught:
        client.delete_role(RoleName="worker")
    assert caught.value.response["ResponseMetadata"]["HTTPStatusCode"] == 409


def test_credentials_of_a_role_are_accepted(session: Any) -> None:
    role = session("iam").create_role(RoleName="worker", AssumeRolePolicyDocument=json.dumps(TRUST))["Role"]
    issued = session("sts").assume_role(RoleArn=role["Arn"], RoleSessionName="one")["Credentials"]
    assert abs(issued["Expiration"].timestamp() - time.time() - 3600) < 60
    worker = session(
        "sts",
        aws_access_key_id=issued["AccessKeyId"],
        aws_secret_access_key=issued["SecretAccessKey"],
        aws_session_token=issued["SessionToken"],
    )
    assert worker.get_caller_identity()["Arn"].endswith(":assumed-role/worker/one")


def test_file_systems(session: Any, clock: ManualClock) -> None:
    client = session("efs")
    made = client.create_file_system(CreationToken="one", ThroughputMode="elastic", Encrypted=True)
    assert abs(made["CreationTime"].timestamp() - time.time()) < 60
    clock.advance(0)
    client.tag_resource(ResourceId=made["FileSystemId"], Tags=[{"Key": "a", "Value": "b"}])
    assert client.describe_file_systems()["FileSystems"][0]["Tags"] == [{"Key": "a", "Value": "b"}]
    pages = client.get_paginator("describe_file_systems").paginate(PaginationConfig={"PageSize": 1})
    assert [system["LifeCycleState"] for page in pages for system in page["FileSystems"]] == ["available"]
    with pytest.raises(client.exceptions.FileSystemAlreadyExists, match=made["FileSystemId"]):
        client.create_file_system(CreationToken="one")


def test_buckets_and_their_policies(session: Any) -> None:
    client = session("s3")
    assert client.create_bucket(Bucket="bucket-1")["Location"] == "/bucket-1"
    document = {
        "Version": "2012-10-17",
        "Statement": [{"Effect": "Deny", "Principal": "*", "Action": "s3:DeleteBucket", "Resource": "arn:aws:s3:::b"}],
    }
    client.put_bucket_policy(Bucket="bucket-1", Policy=json.dumps(document))
    assert json.loads(client.get_bucket_policy(Bucket="bucket-1")["Policy"]) == document
    with pytest.raises(ClientError, match="MalformedPolicy"):
        client.put_bucket_policy(Bucket="bucket-1", Policy="{")
