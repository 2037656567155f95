"""The way to AWS: throttling is survived, all pages come, and each failure is a sentence."""

from __future__ import annotations

import email.utils
import json
import time
from collections.abc import Callable
from typing import Any

import botocore.exceptions
import pytest
from ansible_collections.deeplearning.aws.plugins.module_utils.aws.client import Aws, AwsError, iam_action, problem
from ansible_collections.deeplearning.aws.plugins.module_utils.contract import hosts, names

from tests.account.fleet import TRUST
from tests.unit.conftest import Account


def connected(**options: Any) -> Aws:
    return Aws("us-east-1", wait=lambda _seconds: None, **options)


def test_a_third_of_all_calls_throttled_breaks_nothing(aws: Account) -> None:
    aws.cloud.faults.seed(1)
    aws.cloud.faults.add("throttle", {}, 0.3)
    login = connected()
    for _ in range(60):
        assert login.call("ec2", "describe_vpcs")["Vpcs"]


def test_endless_throttling_ends_in_a_sentence(aws: Account) -> None:
    aws.cloud.faults.add("throttle", {}, 1.0)
    with pytest.raises(AwsError, match="still throttles ec2:DescribeVpcs after all retries"):
        connected().call("ec2", "describe_vpcs")


@pytest.mark.parametrize(("variable", "attempts"), [(None, 10), ("4", 4), ("1", 1), ("many", 10)])
def test_a_throttled_call_is_attempted_so_often_and_not_more(
    aws: Account, monkeypatch: pytest.MonkeyPatch, variable: str | None, attempts: int
) -> None:
    if variable is not None:
        monkeypatch.setenv("AWS_MAX_ATTEMPTS", variable)
    aws.cloud.faults.add("throttle", {}, 1.0)
    with pytest.raises(AwsError):
        connected().call("ec2", "describe_vpcs")
    assert aws.calls().count("ec2:DescribeVpcs") == attempts


@pytest.mark.parametrize(("choice", "pauses"), [(max, [0.25, 0.5, 1, 2, 4, 8, 8, 8, 8]), (min, [0] * 9)])
def test_pauses_are_random_and_their_bound_grows(
    aws: Account, monkeypatch: pytest.MonkeyPatch, choice: Callable[[float, float], float], pauses: list[float]
) -> None:
    monkeypatch.setattr("random.uniform", choice)
    aws.cloud.faults.add("throttle", {}, 1.0)
    actual: list[float] = []
    with pytest.raises(AwsError):
        Aws("us-east-1", wait=actual.append).call("ec2", "describe_vpcs")
    assert actual == pauses


@pytest.mark.parametrize("throttled", [0.0, 0.3])
def test_all_pages_come(aws: Account, throttled: float) -> None:
    ssm = aws.client("ssm")
    for number in range(25):
        ssm.put_parameter(Name=f"/test/{number:02}", Value="x", Type="String")
    aws.cloud.faults.add("throttle", {}, throttled)
    entries = connected().pages("ssm", "get_parameters_by_path", "Parameters", Path="/test", MaxResults=10)
    assert sorted(entry["Name"] for entry in entries) == [f"/test/{number:02}" for number in range(25)]


def test_times_are_those_that_the_sdk_reads(aws: Account) -> None:
    """EC2 and IAM send them as text, S3 as a header's, SSM as a number."""
    aws.client("ssm").put_parameter(Name="/test", Value="x", Type="String")
    aws.client("s3").create_bucket(Bucket="times")
    aws.client("s3").put_object(Bucket="times", Key="x")
    aws.client("iam").create_role(RoleName="r", AssumeRolePolicyDocument=TRUST)
    aws.client("ec2").create_launch_template(
        LaunchTemplateName="times", LaunchTemplateData={"InstanceType": "t3.micro"}
    )
    asked: list[tuple[str, str, dict[str, Any]]] = [
        ("ec2", "describe_launch_templates", {"LaunchTemplateNames": ["times"]}),
        ("s3", "head_object", {"Bucket": "times", "Key": "x"}),
        ("iam", "get_role", {"RoleName": "r"}),
        ("ssm", "get_parameter", {"Name": "/test"}),
    ]
    for service, operation, params in asked:
        theirs = getattr(aws.client(service), operation)(**params)
        del theirs["ResponseMetadata"]
        assert "datetime" in repr(theirs)
        assert connected().call(service, operation, **params) == theirs


def test_what_has_no_pages_is_asked_once(aws: Account) -> None:
    assert connected().pages("ec2", "describe_availability_zones", "AvailabilityZones")
    assert aws.calls().count("ec2:DescribeAvailabilityZones") == 1


@pytest.fixture
def role(aws: Account) -> str:
    """The ARN of a role that may do everything."""
    trust = {"Effect": "Allow", "Principal": {"AWS": "123456789012"}, "Action": "sts:AssumeRole"}
    document = json.dumps({"Version": "2012-10-17", "Statement": [trust]})
    arn = aws.client("iam").create_role(RoleName="guest", AssumeRolePolicyDocument=document)["Role"]["Arn"]
    aws.client("iam").attach_role_policy(RoleName="guest", PolicyArn="arn:aws:iam::aws:policy/AdministratorAccess")
    return str(arn)


def test_a_role_is_assumed_once(aws: Account, role: str) -> None:
    login = connected(role_arn=role)
    assert ":assumed-role/guest/deeplearning" in login.call("sts", "get_caller_identity")["Arn"]
    login.call("ec2", "describe_vpcs")
    assert aws.calls().count("sts:AssumeRole") == 1


def test_a_session_of_a_role_is_replaced_when_it_ends(aws: Account, role: str, monkeypatch: pytest.MonkeyPatch) -> None:
    aws.cloud.credentials.default_seconds = 60
    login = connected(role_arn=role)
    login.call("ec2", "describe_vpcs")
    aws.cloud.clock.advance(61)  # type: ignore[attr-defined]
    login.call("ec2", "describe_vpcs")
    assert aws.calls().count("sts:AssumeRole") == 2


def test_a_role_that_may_not_be_assumed_is_named_as_such(aws: Account) -> None:
    with pytest.raises(AwsError, match="does not allow sts:AssumeRole") as caught:
        connected(role_arn="arn:aws:iam::123456789012:role/missing").call("ec2", "describe_vpcs")
    assert caught.value.action == "sts:AssumeRole"


def test_throttling_of_a_role_session_breaks_nothing(aws: Account, role: str) -> None:
    aws.cloud.faults.seed(1)
    aws.cloud.faults.add("throttle", {"action": "sts:AssumeRole"}, 0.5)
    for _ in range(5):
        assert connected(role_arn=role).call("ec2", "describe_vpcs")["Vpcs"]


def test_missing_credentials(aws: Account, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("AWS_ACCESS_KEY_ID")
    monkeypatch.delenv("AWS_SECRET_ACCESS_KEY")
    with pytest.raises(AwsError, match="credentials are missing.*set AWS_PROFILE") as caught:
        connected().call("sts", "get_caller_identity")
    assert caught.value.is_fatal


def test_unknown_profile(aws: Account) -> None:
    with pytest.raises(AwsError, match="There is no AWS profile missing"):
        connected(profile="missing")


def test_unknown_key(aws: Account, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "AKIA0000000000000000")
    with pytest.raises(AwsError, match="does not accept the credentials") as caught:
        connected().call("sts", "get_caller_identity")
    assert caught.value.is_fatal


def test_without_an_answer_the_connection_is_reported(aws: Account, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:9")
    with pytest.raises(AwsError, match=r"AWS cannot be reached at http://127.0.0.1:9/ \(EndpointConnectionError\)"):
        connected().call("sts", "get_caller_identity")


def test_no_url(aws: Account, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL", "nowhere")
    with pytest.raises(AwsError, match="Check AWS_ENDPOINT_URL"):
        connected().call("sts", "get_caller_identity")


def answered(
    code: str, words: str = "", status: int = 400, service: str = "efs", operation: str = "DescribeFileSystems"
) -> AwsError:
    answer = {"Error": {"Code": code, "Message": words}, "ResponseMetadata": {"HTTPStatusCode": status}}
    return problem(botocore.exceptions.ClientError(answer, operation), service, operation)


@pytest.mark.parametrize(
    ("code", "words", "message"),
    [
        (
            "UnauthorizedOperation",
            "You are not authorized to perform this operation.",
            "does not allow elasticfilesystem:",
        ),
        ("403", "Forbidden", "does not allow elasticfilesystem:DescribeFileSystems to these credentials"),
        (
            "AccessDenied",
            "User: arn:aws:iam::1:user/eve is not authorized to perform: elasticfilesystem:TagResource on resource: "
            "arn:aws:elasticfilesystem:::x because no identity-based policy allows it",
            "does not allow elasticfilesystem:TagResource on arn:aws:elasticfilesystem:::x to arn:aws:iam::1:user/eve: "
            "give it this permission (see docs/iam.md).",
        ),
        (
            "AccessDeniedException",
            "User: arn:aws:iam::1:user/eve is not authorized to perform: elasticmapreduce:RunJobFlow on resource: "
            "arn:aws:elasticmapreduce:us-east-1:1:cluster/* with an explicit deny in a service control policy",
            "elasticmapreduce:RunJobFlow on arn:aws:elasticmapreduce:us-east-1:1:cluster/* to arn:aws:iam::1:user/eve, "
            "with an explicit deny in a service control policy: a permission of its own does not help. Ask the ",
        ),
        (
            "UnauthorizedOperation",
            "You are not authorized to perform this operation. User: arn:aws:iam::1:user/eve is not authorized to "
            "perform: ec2:RunInstances on resource: arn:aws:ec2:us-east-1:1:instance/* with an explicit deny in a "
            "service control policy: arn:aws:organizations::2:policy/o-1/service_control_policy/p-1. Encoded "
            "authorization failure message: abc",
            "with an explicit deny in a service control policy: "
            "arn:aws:organizations::2:policy/o-1/service_control_policy/p-1: a permission",
        ),
        (
            "AccessDenied",
            "User: arn:aws:iam::1:user/eve is not authorized to perform: s3:GetObject because no permissions boundary "
            "allows the s3:GetObject action",
            "to arn:aws:iam::1:user/eve, because no permissions boundary allows the s3:GetObject action: a permission",
        ),
        (
            "AccessDenied",
            "User: arn:aws:iam::1:user/eve is not authorized to perform: s3:GetObject with an explicit deny",
            "to arn:aws:iam::1:user/eve, with an explicit deny: a permission of its own does not help.",
        ),
        ("ExpiredToken", "The security token included in the request is expired", "credentials have expired"),
        ("VpcLimitExceeded", "The maximum number of VPCs has been reached.", "request a higher limit in Service"),
        ("BadThing", "It was bad.", "elasticfilesystem:DescribeFileSystems failed: It was bad. (BadThing)."),
        ("BadThing", "", "elasticfilesystem:DescribeFileSystems failed: BadThing."),
    ],
)
def test_a_refusal_becomes_one_sentence(code: str, words: str, message: str) -> None:
    assert message in str(answered(code, words))


EXPIRED, UNKNOWN, CLOCK = "credentials have expired", "does not accept the credentials", "clock differs too much"


@pytest.mark.parametrize(
    ("service", "code", "status", "words", "message"),
    [
        # A key that is not known, a session that has ended, a clock that is wrong: each service has words of its own.
        ("ec2", "AuthFailure", 401, "AWS was not able to validate the provided access credentials", UNKNOWN),
        ("ec2", "RequestExpired", 400, "Request has expired.", "or this machine's clock is wrong"),
        ("ec2", "MissingAuthenticationToken", 403, "Request is missing Authentication Token", UNKNOWN),
        ("sts", "InvalidClientTokenId", 403, "The security token included in the request is invalid.", UNKNOWN),
        ("iam", "ExpiredToken", 403, "The security token included in the request is expired", EXPIRED),
        ("iam", "SignatureDoesNotMatch", 403, "Signature expired: 20261121T1000Z is now earlier than …", CLOCK),
        ("autoscaling", "SignatureDoesNotMatch", 403, "The request signature we calculated does not match", UNKNOWN),
        ("efs", "UnrecognizedClientException", 403, "The security token included in the request is invalid.", UNKNOWN),
        ("efs", "ExpiredTokenException", 403, "The security token included in the request is expired", EXPIRED),
        ("efs", "InvalidSignatureException", 403, "Signature not yet current: …", CLOCK),
        ("ssm", "UnrecognizedClientException", 400, "The security token included in the request is invalid.", UNKNOWN),
        ("ssm", "ExpiredTokenException", 400, "The security token included in the request is expired", EXPIRED),
        ("ssm", "MissingAuthenticationTokenException", 400, "Missing Authentication Token", UNKNOWN),
        ("s3", "InvalidAccessKeyId", 403, "The AWS Access Key Id you provided does not exist in our records.", UNKNOWN),
        ("s3", "ExpiredToken", 400, "The provided token has expired.", EXPIRED),
        ("s3", "InvalidToken", 400, "The provided token is malformed or otherwise invalid.", UNKNOWN),
        ("s3", "RequestTimeTooSkewed", 403, "The difference between the request time and the current time …", CLOCK),
    ],
)
def test_bad_credentials_in_the_words_of_each_service(
    service: str, code: str, status: int, words: str, message: str
) -> None:
    error = answered(code, words, status, service, "DescribeThings")
    assert message in str(error)
    assert error.is_fatal and not error.denied


@pytest.mark.parametrize(
    ("code", "status", "words"),
    [
        ("RequestExpired", 400, "Request has expired."),
        ("AuthFailure", 401, "AWS was not able to validate the provided access credentials"),
        ("SignatureDoesNotMatch", 403, "The request signature we calculated does not match"),
    ],
)
@pytest.mark.parametrize(("apart", "is_clock"), [(-1200, True), (1200, True), (60, False), (None, False)])
def test_the_time_of_the_answer_tells_a_wrong_clock_from_bad_credentials(
    code: str, status: int, words: str, apart: float | None, is_clock: bool
) -> None:
    headers = {} if apart is None else {"date": email.utils.formatdate(time.time() + apart, usegmt=True)}
    metadata = {"HTTPStatusCode": status, "HTTPHeaders": headers}
    answer = {"Error": {"Code": code, "Message": words}, "ResponseMetadata": metadata}
    error = problem(botocore.exceptions.ClientError(answer, "DescribeThings"), "ec2", "DescribeThings")
    assert (CLOCK in str(error)) is is_clock
    assert error.is_fatal


def test_another_refusal_is_not_blamed_on_the_clock() -> None:
    headers = {"date": email.utils.formatdate(time.time() + 1200, usegmt=True)}
    metadata = {"HTTPStatusCode": 403, "HTTPHeaders": headers}
    answer = {"Error": {"Code": "AccessDenied", "Message": "No."}, "ResponseMetadata": metadata}
    assert CLOCK not in str(problem(botocore.exceptions.ClientError(answer, "DescribeThings"), "ec2", "DescribeThings"))


def test_s3_answers_head_with_a_number() -> None:
    assert UNKNOWN in str(answered("400", "Bad Request", 400, "s3", "HeadBucket"))


def test_a_foreign_resource_is_no_problem_of_credentials() -> None:
    words = "You do not have permission to access the specified resource."
    error = answered("AuthFailure", words, 403, "ec2", "AssociateAddress")
    assert str(error) == f"ec2:AssociateAddress failed: {words} (AuthFailure)."
    assert not error.is_fatal


def test_permissions_are_called_as_iam_calls_them() -> None:
    assert iam_action("efs", "CreateFileSystem") == "elasticfilesystem:CreateFileSystem"
    assert iam_action("service-quotas", "GetServiceQuota") == "servicequotas:GetServiceQuota"
    assert iam_action("s3", "HeadBucket") == "s3:ListBucket"
    assert iam_action("ec2", "DescribeVpcs") == "ec2:DescribeVpcs"


def test_tags_keep_their_values_in_the_form_of_the_api() -> None:
    tags = {"Name": "red-vpc", "deeplearning:cluster": "red", "team": "a"}
    assert names.tags_of(names.tag_list(tags)) == tags


def test_names() -> None:
    red = names.Names("red", "123456789012", "eu-west-1")
    assert red.bucket == "red-123456789012-eu-west-1"
    assert red.identity("master") == "red-eu-west-1-master"
    assert [hosts.inventory_name(rank) for rank in (1, 2)] == ["deeplearning-master", "deeplearning-worker2"]
