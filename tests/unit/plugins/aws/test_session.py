"""A session of AWS: regions, accounts, objects, and what each failure is called."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import botocore.exceptions
import pytest
from ansible_collections.deeplearning.aws.plugins.module_utils.aws import client
from ansible_collections.deeplearning.aws.plugins.module_utils.aws.client import Aws, AwsError, problem

from tests.unit.conftest import Account


def connected(region: str = "us-east-1", **options: Any) -> Aws:
    return Aws(region, wait=lambda _seconds: None, **options)


@pytest.mark.parametrize(
    ("region", "partition"), [("us-east-1", "aws"), ("cn-north-1", "aws-cn"), ("us-gov-west-1", "aws-us-gov")]
)
def test_a_region_belongs_to_a_partition(aws: Account, region: str, partition: str) -> None:
    assert connected(region).partition == partition


def test_regions_of_all_partitions_are_known_in_order(aws: Account) -> None:
    regions = connected().regions()
    assert {"us-east-1", "cn-north-1", "us-gov-west-1"} <= set(regions)
    assert regions == sorted(set(regions)) and aws.calls() == []


def test_the_account_is_read_once(aws: Account) -> None:
    session = connected()
    assert session.account == session.account == "123456789012"
    assert aws.calls().count("sts:GetCallerIdentity") == 1


def test_another_region_has_clients_of_its_own(aws: Account) -> None:
    here = connected()
    here.call("ec2", "describe_vpcs")
    other = here.in_region("eu-west-1")
    (zone, *_others) = other.call("ec2", "describe_availability_zones")["AvailabilityZones"]
    assert (zone["RegionName"], other.region, here.region) == ("eu-west-1", "eu-west-1", "us-east-1")
    assert here.client("ec2").meta.region_name == "us-east-1"
    assert here.client("ec2") is here.client("ec2") is not other.client("ec2")


def test_an_endpoint_may_be_given(aws: Account, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("AWS_ENDPOINT_URL")
    assert connected(endpoint=aws.endpoint).call("ec2", "describe_vpcs")["Vpcs"]


def test_an_answer_has_no_metadata(aws: Account) -> None:
    assert "ResponseMetadata" not in connected().call("ec2", "describe_vpcs")


def test_what_is_missing_is_empty_and_other_refusals_are_raised(aws: Account) -> None:
    session = connected()
    codes = ("InvalidVpcID.NotFound",)
    assert session.find("ec2", "describe_vpcs", codes)["Vpcs"]
    assert session.find("ec2", "describe_vpcs", codes, VpcIds=["vpc-0123456789abcdef0"]) == {}
    with pytest.raises(AwsError) as caught:
        session.find("ec2", "describe_vpcs", ("Other",), VpcIds=["vpc-0123456789abcdef0"])
    assert (caught.value.code, caught.value.action) == ("InvalidVpcID.NotFound", "ec2:DescribeVpcs")
    assert not caught.value.is_fatal and not caught.value.denied


def test_an_object_is_read_whole_or_in_part_and_from_the_accounts_bucket_alone(aws: Account) -> None:
    s3 = aws.client("s3")
    s3.create_bucket(Bucket="mine")
    s3.put_object(Bucket="mine", Key="a", Body=b"content")
    session = connected()
    assert session.content("mine", "a") == session.content("mine", "a", "123456789012") == b"content"
    assert session.content("mine", "a", most=3) == b"con"
    with pytest.raises(AwsError) as caught:
        session.content("mine", "a", "210987654321")
    assert caught.value.denied


def test_an_object_whose_connection_breaks_is_one_sentence(aws: Account, monkeypatch: pytest.MonkeyPatch) -> None:
    class Broken:
        def read(self, _most: int | None) -> bytes:
            raise botocore.exceptions.ReadTimeoutError(endpoint_url="https://s3")

    session = connected()
    monkeypatch.setattr(session, "call", lambda *_names, **_params: {"Body": Broken()})
    with pytest.raises(AwsError, match=r"AWS cannot be reached at https://s3 \(ReadTimeoutError\)") as caught:
        session.content("mine", "a")
    assert caught.value.action == "s3:GetObject" and caught.value.is_fatal


def test_a_client_for_transfers_retries_by_itself_and_the_other_does_not(aws: Account) -> None:
    session = connected()
    attempts = {name: getattr(session, name)("s3").meta.config.retries for name in ("client", "retrying_client")}
    assert attempts["client"] == {"mode": "standard", "total_max_attempts": 1}
    assert attempts["retrying_client"] == {"mode": "standard", "total_max_attempts": 10}


def test_a_call_that_hangs_ends(aws: Account) -> None:
    config = connected().client("ec2").meta.config
    assert (config.connect_timeout, config.read_timeout, config.max_pool_connections) == (10, 60, 32)


def test_calls_name_the_collection_in_their_user_agent(aws: Account) -> None:
    agents: list[str] = []
    client = connected().client("ec2")
    client.meta.events.register(
        "before-send", lambda request, **_more: agents.append(str(request.headers["User-Agent"]))
    )
    client.describe_vpcs()
    assert len(agents) == 1 and "deeplearning.aws" in agents[0]


@pytest.mark.parametrize("status", [500, 502, 503, 504])
@pytest.mark.parametrize(("code", "again"), [("Whatever", True), ("InternalError", True)])
def test_what_aws_itself_breaks_is_tried_again(aws: Account, status: int, code: str, again: bool) -> None:
    aws.cloud.faults.add(
        "error", {"action": "ec2:DescribeVpcs"}, {"code": code, "message": "No.", "status": status}, left=2
    )
    assert connected().call("ec2", "describe_vpcs")["Vpcs"]
    assert aws.calls().count("ec2:DescribeVpcs") == 3


@pytest.mark.parametrize(
    ("code", "status", "attempts"),
    [("Unavailable", 503, 10), ("RequestTimeout", 400, 10), ("SlowDown", 400, 10), ("Odd", 501, 1), ("Odd", 400, 1)],
)
def test_how_often_a_refusal_is_tried(aws: Account, code: str, status: int, attempts: int) -> None:
    words = {"code": code, "message": "No.", "status": status}
    aws.cloud.faults.add("error", {"action": "ec2:DescribeVpcs"}, words)
    with pytest.raises(AwsError):
        connected().call("ec2", "describe_vpcs")
    assert aws.calls().count("ec2:DescribeVpcs") == attempts


@pytest.mark.parametrize(("variable", "attempts"), [("", 3), ("2", 2), ("0", 1), ("9", 3)])
def test_a_lost_connection_is_tried_a_few_times(
    aws: Account, monkeypatch: pytest.MonkeyPatch, variable: str, attempts: int
) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:9")
    monkeypatch.setenv("AWS_MAX_ATTEMPTS", variable)
    pauses: list[float] = []
    with pytest.raises(AwsError):
        Aws("us-east-1", wait=pauses.append).call("sts", "get_caller_identity")
    assert len(pauses) == attempts - 1 and all(0 <= pause <= 0.25 * 2**place for place, pause in enumerate(pauses))


def test_without_boto3_the_cure_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client, "MISSING", ImportError("boto3"))
    with pytest.raises(AwsError, match=r"Python cannot import boto3: install it where Ansible runs") as caught:
        connected()
    assert caught.value.is_fatal and caught.value.code == client.LOGIN


def test_a_role_needs_credentials_of_ones_own(aws: Account, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("AWS_ACCESS_KEY_ID")
    monkeypatch.delenv("AWS_SECRET_ACCESS_KEY")
    with pytest.raises(AwsError, match="credentials are missing") as caught:
        connected(role_arn="arn:aws:iam::123456789012:role/guest")
    assert caught.value.is_fatal


@pytest.fixture
def profile(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    (tmp_path / "config").write_text("[profile me]\nregion = eu-west-1\n")
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "config"))
    return "me"


def test_a_profile_is_used_and_named(aws: Account, profile: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("AWS_ACCESS_KEY_ID")
    monkeypatch.delenv("AWS_SECRET_ACCESS_KEY")
    session = Aws.from_options({"region": "us-east-1", "profile": profile, "role_arn": ""})
    with pytest.raises(AwsError, match=r"credentials are missing \(the profile me has none\)"):
        session.call("sts", "get_caller_identity")
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "AKIA0000000000000000")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "not-a-secret")
    # A profile that is named comes before the environment, so it still has none.
    with pytest.raises(AwsError, match=r"\(the profile me has none\)"):
        connected(profile=profile).call("sts", "get_caller_identity")


def test_the_role_of_the_options_is_assumed(aws: Account) -> None:
    session = Aws.from_options(
        {"region": "us-east-1", "profile": "", "role_arn": "arn:aws:iam::123456789012:role/missing"}
    )
    with pytest.raises(AwsError, match="does not allow sts:AssumeRole"):
        session.call("ec2", "describe_vpcs")


E = botocore.exceptions


@pytest.mark.parametrize(
    ("error", "code", "sentence"),
    [
        (
            E.UnauthorizedSSOTokenError(),
            client.LOGIN,
            "single sign-on session has ended: run `aws sso login --profile me`",
        ),
        (E.TokenRetrievalError(provider="sso", error_msg="x"), client.LOGIN, "single sign-on session has ended"),
        (
            E.CredentialRetrievalError(provider="process", error_msg="it\nfailed"),
            client.LOGIN,
            "The AWS credentials could not be fetched: Error when retrieving credentials from process: it failed.",
        ),
        (
            E.PartialCredentialsError(provider="env", cred_var="AWS_SECRET_ACCESS_KEY"),
            client.LOGIN,
            "AWS credentials are missing (the profile me has none)",
        ),
        (E.InvalidRegionError(region_name="us east"), client.LOGIN, "AWS has no such region: Provided region_name"),
        (E.NoRegionError(), client.LOGIN, "AWS has no such region: You must specify a region."),
        (
            E.ConnectTimeoutError(endpoint_url="https://ec2"),
            client.UNREACHABLE,
            "AWS cannot be reached at https://ec2 (ConnectTimeoutError): check the network, the proxy settings",
        ),
        (E.HTTPClientError(error="x"), client.UNREACHABLE, "AWS cannot be reached (HTTPClientError): check"),
        (ValueError("Invalid endpoint: x"), client.UNREACHABLE, "Invalid endpoint: x. Check AWS_ENDPOINT_URL."),
        (E.ParamValidationError(report="bad!"), "ParamValidationError", "elasticfilesystem:CreateTags failed: Para"),
    ],
)
def test_an_error_of_the_sdk_is_a_sentence(error: Exception, code: str, sentence: str) -> None:
    explained = problem(error, "efs", "CreateTags", "me")
    assert sentence in str(explained) and explained.code == code
    assert explained.is_fatal is (code in (client.LOGIN, client.UNREACHABLE))
    assert explained.action == "elasticfilesystem:CreateTags"


def test_without_a_profile_or_an_action_neither_is_named() -> None:
    assert "run `aws sso login`." in str(problem(E.UnauthorizedSSOTokenError()))
    assert str(problem(E.UnknownSignatureVersionError(signature_version="x"))).startswith("AWS failed: ")
    assert str(problem(E.UnknownSignatureVersionError(signature_version="x"), "ec2")).startswith("ec2 failed: ")
    assert "(none were found)" in str(problem(E.NoCredentialsError()))


def refused(code: str, words: str = "", **more: Any) -> AwsError:
    return client.refusal(code, words, "ec2:CreateVpc", **more)


def test_refusals_of_a_caller_name_the_profile() -> None:
    assert "does not accept the credentials of the profile me (InvalidToken)" in str(
        refused("InvalidToken", profile="me")
    )
    assert "does not accept the credentials (InvalidToken)" in str(refused("InvalidToken"))
    assert refused("Odd", unknown=True).is_fatal and not refused("Odd").is_fatal


@pytest.mark.parametrize(
    "code",
    [
        *("AccessDenied", "AccessDeniedException", "UnauthorizedOperation", "NotAuthorized", "403"),
    ],
)
def test_each_code_of_a_missing_permission_is_known(code: str) -> None:
    error = refused(code)
    assert error.denied and "AWS does not allow ec2:CreateVpc to these credentials" in str(error)
    assert (error.code, error.action) == (code, "ec2:CreateVpc")


@pytest.mark.parametrize(
    "code",
    [
        *("Throttling", "ThrottlingException", "ThrottledException", "RequestThrottled", "RequestThrottledException"),
        *("RequestLimitExceeded", "TooManyRequestsException", "SlowDown", "EC2ThrottledException"),
    ],
)
def test_each_code_of_throttling_is_known(code: str) -> None:
    assert "still throttles ec2:CreateVpc after all retries" in str(refused(code))


def test_other_refusals() -> None:
    assert str(refused("OptInRequired")) == "This account may not use ec2 in this region: enable the region."
    assert "request a higher limit" not in str(refused("Odd", "No."))
    assert "(docs/iam.md)" not in str(refused("Odd", "No.")) and not refused("Odd", "No.").denied
    named = (
        "User: arn:aws:iam::1:user/eve is not authorized to perform: ec2:RunInstances on resource: arn:aws:ec2:::i/*"
    )
    assert refused("AccessDenied", named).action == "ec2:RunInstances"
    # Only a missing permission names the action that is missing.
    assert refused("Odd", named).action == "ec2:CreateVpc"


def test_times_may_be_numbers_and_texts_with_a_zone() -> None:
    assert client._parse_time(0).isoformat() == "1970-01-01T00:00:00+00:00"
    for text in ("2026-11-23T05:04:00Z", "Mon, 23 Nov 2026 05:04:00 GMT", "2026-11-23T06:04:00+01:00"):
        assert client._parse_time(text).timestamp() == 1795410240


@pytest.mark.parametrize(
    ("service", "operation", "tokens"),
    [
        ("s3", "list_objects", {"NextMarker": "Marker"}),
        ("s3", "list_object_versions", {"NextKeyMarker": "KeyMarker", "NextVersionIdMarker": "VersionIdMarker"}),
        ("ec2", "describe_vpcs", {"NextToken": "NextToken"}),
        ("ec2", "describe_availability_zones", {}),
    ],
)
def test_how_the_next_page_is_requested(aws: Account, service: str, operation: str, tokens: dict[str, str]) -> None:
    assert client._tokens(connected().client(service), operation) == tokens


@pytest.mark.parametrize(
    ("region", "sentence"),
    [
        ("eu-west-9", r"AWS has no region eu-west-9, as far as the SDK .*Did you mean .*eu-west-\d.*Example: "),
        ("atlantis", "AWS has no region atlantis, as far as .*Check its name"),
        ("eu-west-1", "AWS cannot be reached at https://sts"),
    ],
)
def test_a_region_that_does_not_exist_is_named_and_not_the_network(
    region: str, sentence: str, aws: Account, monkeypatch: pytest.MonkeyPatch
) -> None:
    session = connected(region)
    error = botocore.exceptions.EndpointConnectionError(endpoint_url="https://sts")
    with pytest.raises(AwsError, match="AWS cannot be reached"):
        raise session._problem(error, "sts", "get_caller_identity")
    # There is no endpoint of the operator's own any more.
    monkeypatch.delenv("AWS_ENDPOINT_URL")
    explained = session._problem(error, "sts", "get_caller_identity")
    assert re.search(sentence, str(explained)), explained
    assert explained.is_fatal and explained.code == client.UNREACHABLE
