"""The front over HTTP: whose signature it takes, and in which words it refuses the others."""

from __future__ import annotations

import re
import time
import urllib.error
import urllib.request
from collections.abc import Mapping
from email.utils import parsedate_to_datetime
from typing import Any

import pytest
from botocore.config import Config
from botocore.exceptions import ClientError

from localcloud.endpoint.signature import Signature, read_signature
from localcloud.testing.clock import ManualClock
from localcloud_kits.rules_kit import REGION, SESSION, Aws, refused

pytestmark = pytest.mark.filterwarnings("ignore:.*does not match an error shape:UserWarning")


@pytest.fixture
def clock() -> ManualClock:
    """Clients sign with the time that it really is."""
    return ManualClock(time.time())


def fetch(url: str, method: str = "GET", data: bytes | None = None, **headers: str) -> tuple[int, bytes]:
    request = urllib.request.Request(url, data, headers, method=method)
    try:
        with urllib.request.urlopen(request, timeout=10) as answer:
            return answer.status, answer.read()
    except urllib.error.HTTPError as error:
        return error.code, error.read()


def code_in(body: bytes) -> str:
    result = re.search(rb"<Code>(.*?)</Code>", body)
    return result[1].decode() if result else ""


# Signatures

ASK: dict[str, tuple[str, dict[str, str]]] = {
    "accessanalyzer": ("validate_policy", {"policyDocument": "{}", "policyType": "IDENTITY_POLICY"}),
    "ec2": ("describe_vpcs", {}),
    "iam": ("list_roles", {}),
    "sts": ("get_caller_identity", {}),
    "s3": ("list_buckets", {}),
    "efs": ("describe_file_systems", {}),
    "ssm": ("get_parameters", {"Names": ["a"]}),
    "autoscaling": ("describe_auto_scaling_groups", {}),
    "emr": ("list_clusters", {}),
    "pricing": ("get_products", {"ServiceCode": "AmazonEC2"}),
    "service-quotas": ("get_service_quota", {"ServiceCode": "ec2", "QuotaCode": "L-1216C47A"}),
}


def ask(client: Any, service: str) -> None:
    operation, params = ASK[service]
    getattr(client, operation)(**params)


@pytest.mark.parametrize("service", ASK)
def test_each_service_takes_its_clients_signature_and_no_wrong_one(aws: Aws, service: str) -> None:
    ask(aws(service), service)
    impostor = aws.client(service, aws.operator_key, "wrong")
    assert refusal(impostor, service) == WRONG_SECRET[service]
    good, bad = aws.cloud.calls.since()
    assert (good["result"], (bad["result"], bad["status"])) == ("ok", WRONG_SECRET[service])
    assert bad["caller"] == good["caller"]


def refusal(client: Any, service: str) -> tuple[str, int]:
    """The code and the HTTP status of a refused call."""
    with pytest.raises(ClientError) as caught:
        ask(client, service)
    return caught.value.response["Error"]["Code"], caught.value.response["ResponseMetadata"]["HTTPStatusCode"]


WRONG_SECRET = {
    "accessanalyzer": ("InvalidSignatureException", 403),
    "autoscaling": ("SignatureDoesNotMatch", 403),
    "ec2": ("AuthFailure", 401),
    "efs": ("InvalidSignatureException", 403),
    "emr": ("InvalidSignatureException", 400),
    "iam": ("SignatureDoesNotMatch", 403),
    "s3": ("SignatureDoesNotMatch", 403),
    "pricing": ("InvalidSignatureException", 400),
    "service-quotas": ("InvalidSignatureException", 400),
    "ssm": ("InvalidSignatureException", 400),
    "sts": ("SignatureDoesNotMatch", 403),
}


@pytest.mark.parametrize(
    ("service", "key", "token", "expired", "clock_is_wrong"),
    [
        ("autoscaling", ("InvalidClientTokenId", 403), ("InvalidClientTokenId", 403), ("ExpiredToken", 403),
         ("SignatureDoesNotMatch", 403)),
        ("ec2", ("AuthFailure", 401), ("AuthFailure", 401), ("RequestExpired", 400), ("RequestExpired", 400)),
        ("efs", ("UnrecognizedClientException", 403), ("UnrecognizedClientException", 403),
         ("ExpiredTokenException", 403), ("InvalidSignatureException", 403)),
        ("s3", ("InvalidAccessKeyId", 403), ("InvalidToken", 400), ("ExpiredToken", 400),
         ("RequestTimeTooSkewed", 403)),
        ("ssm", ("UnrecognizedClientException", 400), ("UnrecognizedClientException", 400),
         ("ExpiredTokenException", 400), ("InvalidSignatureException", 400)),
    ],
)  # fmt: skip
def test_each_service_words_a_refused_login_in_its_own_way(
    aws: Aws,
    clock: ManualClock,
    service: str,
    key: tuple[str, int],
    token: tuple[str, int],
    expired: tuple[str, int],
    clock_is_wrong: tuple[str, int],
) -> None:
    assert refusal(aws.client(service, "AKIANOBODY", "secret"), service) == key
    session = aws.role("worker")
    assert refusal(aws.client(service, session.access_key, session.secret, "wrong"), service) == token
    session.expires = clock.time()
    assert refusal(aws(service, session), service) == expired
    clock._now += 3600
    assert refusal(aws(service), service) == clock_is_wrong


def test_a_clock_that_is_skewed_is_refused_and_told_the_time(aws: Aws, clock: ManualClock) -> None:
    fault = aws.cloud.faults.add("skew", {}, 3600.0)
    with pytest.raises(ClientError, match="RequestTimeTooSkewed") as caught:
        aws("s3").list_buckets()
    date = caught.value.response["ResponseMetadata"]["HTTPHeaders"]["date"]
    assert parsedate_to_datetime(date).timestamp() == int(clock.time() + 3600)
    aws.cloud.faults.remove(fault)
    assert aws("s3").list_buckets()["Buckets"] == []


def test_a_key_that_nobody_holds(aws: Aws) -> None:
    with refused("AuthFailure"):
        aws.client("ec2", "AKIANOBODY", "secret").describe_vpcs()
    assert aws.cloud.calls.since()[0]["caller"] == "anonymous"


def test_a_session_needs_its_token_and_its_time(aws: Aws, clock: ManualClock) -> None:
    session = aws.role("worker")
    assert aws("sts", session).get_caller_identity()["Arn"].endswith("/worker/one")
    for token in (None, "wrong"):
        with refused("InvalidClientTokenId"):
            aws.client("sts", session.access_key, session.secret, token).get_caller_identity()
    session.expires = clock.time()
    with refused("ExpiredToken"):
        aws("sts", session).get_caller_identity()


@pytest.mark.parametrize(
    "seconds, words", [(-890, ""), (890, ""), (-910, "Signature not yet current"), (910, "Signature expired")]
)
def test_clocks_may_differ_by_a_quarter_of_an_hour(aws: Aws, clock: ManualClock, seconds: float, words: str) -> None:
    clock._now += seconds
    if words:
        with refused("SignatureDoesNotMatch", words):
            aws("sts").get_caller_identity()
    else:
        aws("sts").get_caller_identity()


def test_a_region_that_is_none(aws: Aws) -> None:
    key, secret = aws._operator
    client = SESSION.client(
        "ec2", "us-esat-1", endpoint_url=aws._url, aws_access_key_id=key, aws_secret_access_key=secret
    )
    with refused("SignatureDoesNotMatch", "Credential should be scoped to a valid region, not 'us-esat-1'"):
        client.describe_vpcs()


def test_a_body_that_was_changed_on_its_way(aws: Aws) -> None:
    """The signature holds for what was sent, not for what came."""
    client = aws("ec2")

    def change(request: Any, **_more: Any) -> None:
        request.body = request.body.replace("DescribeVpcs", "DescribeTags")

    client.meta.events.register("before-send.ec2.DescribeVpcs", change)
    with refused("AuthFailure"):
        client.describe_vpcs()


def test_unsigned_requests_are_nobodys(aws: Aws) -> None:
    aws("s3").create_bucket(Bucket="bucket-1")
    for path, data in (("/", b"Action=DescribeVpcs&Version=2016-11-15"), ("/bucket-1/key", None)):
        status, body = fetch(aws._url + path, "POST" if data else "GET", data)
        assert (status, code_in(body)) == (403, "MissingAuthenticationToken")


def signing_urls(aws: Aws) -> Any:
    """A client that signs URLs as all of AWS understands: left alone, boto3 still signs those of S3 as in 2006."""
    config = Config(signature_version="s3v4", s3={"addressing_style": "path"})
    key, secret = aws._operator
    return SESSION.client(
        "s3", REGION, endpoint_url=aws._url, aws_access_key_id=key, aws_secret_access_key=secret, config=config
    )


def test_a_presigned_url_serves_for_its_time_and_for_what_it_says(aws: Aws, clock: ManualClock) -> None:
    s3 = signing_urls(aws)
    s3.create_bucket(Bucket="bucket-1")
    s3.put_object(Bucket="bucket-1", Key="a b/c+d", Body=b"content")
    url = s3.generate_presigned_url("get_object", {"Bucket": "bucket-1", "Key": "a b/c+d"}, ExpiresIn=60)
    assert fetch(url) == (200, b"content")
    for wrong in (url.replace("a%20b", "a%20c"), url.replace("Expires=60", "Expires=600"), url[:-1] + "_"):
        status, body = fetch(wrong)
        assert (status, code_in(body)) == (403, "SignatureDoesNotMatch")
    assert fetch(url, "PUT", b"other")[0] == 403
    clock.advance(120)
    status, body = fetch(url)
    assert (status, code_in(body)) == (403, "AccessDenied")
    assert b"Request has expired" in body


def test_a_presigned_upload(aws: Aws) -> None:
    s3 = signing_urls(aws)
    s3.create_bucket(Bucket="bucket-1")
    url = s3.generate_presigned_url("put_object", {"Bucket": "bucket-1", "Key": "k"})
    assert fetch(url, "PUT", b"content", **{"Content-Type": ""})[0] == 200
    assert s3.get_object(Bucket="bucket-1", Key="k")["Body"].read() == b"content"


SCOPE = "AKIA1/20261120/us-east-1/s3/aws4_request"
PRESIGNED = (
    f"X-Amz-Algorithm=AWS4-HMAC-SHA256&X-Amz-Credential={SCOPE.replace('/', '%2F')}&X-Amz-Date=d&X-Amz-Signature=s"
)
HEADER = f"AWS4-HMAC-SHA256 Credential={SCOPE}, SignedHeaders=host;x-amz-date, Signature={'0' * 64}"


@pytest.mark.parametrize(
    "headers, query, expected",
    [
        ({"authorization": HEADER}, "", ("AKIA1", "us-east-1", "s3", False, None)),
        ({"authorization": HEADER.replace(", ", ",")}, "", ("AKIA1", "us-east-1", "s3", False, None)),
        ({}, f"{PRESIGNED}&X-Amz-Expires=60", ("AKIA1", "us-east-1", "s3", True, 60.0)),
        ({}, PRESIGNED, ("AKIA1", "us-east-1", "s3", True, 0.0)),
        ({}, f"{PRESIGNED}&X-Amz-Expires=long", ("AKIA1", "us-east-1", "s3", True, 0.0)),
        ({}, "", None),
        ({"authorization": "AWS AKIA1:sig"}, "", None),  # version 2
        ({"authorization": HEADER.replace("HMAC", "ECDSA-P256")}, "", None),
        ({"authorization": HEADER[:-1]}, "", None),
        ({"authorization": "Basic dXNlcg=="}, "", None),
        ({}, PRESIGNED.replace("%2Faws4_request", ""), None),
    ],
)
def test_what_a_request_says_of_its_signer(
    headers: Mapping[str, str], query: str, expected: tuple[Any, ...] | None
) -> None:
    result: Signature | None = read_signature(headers, query)
    if result is not None:
        seen = (result.access_key, result.region, result.signing_name, result.presigned, result.expires)
        assert seen == expected
    else:
        assert expected is None


# What is not here


@pytest.mark.parametrize(
    "service, operation, name",
    [
        ("athena", "list_work_groups", "athena"),  # JSON
        ("sns", "list_topics", "sns"),  # forms and XML
        ("route53", "list_hosted_zones", "route53"),  # XML
    ],
)
def test_a_service_that_is_not_here_says_so_in_a_protocol_that_its_client_reads(
    aws: Aws, service: str, operation: str, name: str
) -> None:
    with refused("UnknownOperationException", f"The local cloud has no service {name}."):
        getattr(aws(service), operation)()
    [call] = aws.cloud.calls.since()
    assert (call["result"], call["status"]) == ("UnknownOperationException", 400)


def test_an_operation_that_no_model_knows(aws: Aws) -> None:
    client = aws("ec2")

    def change(params: dict[str, Any], **_more: Any) -> None:
        params["body"]["Action"] = "DescribeLunch"

    client.meta.events.register("before-call.ec2.DescribeVpcs", change)
    with refused("InvalidAction", "names no operation that is known here"):
        client.describe_vpcs()


def test_an_operation_that_nobody_answers_is_no_reason_to_try_again(aws: Aws) -> None:
    with pytest.raises(ClientError) as caught:
        aws("efs").list_tags_for_resource(ResourceId="fs-0123456789abcdef0")
    assert caught.value.response["ResponseMetadata"]["HTTPStatusCode"] == 400
    assert caught.value.response["Error"]["Code"] == "UnsupportedOperation"


# Errors, as each protocol has them


@pytest.mark.parametrize(
    "service, operation, params, code, status",
    [
        ("ec2", "describe_vpcs", {"VpcIds": ["vpc-0123456789abcdef0"]}, "InvalidVpcID.NotFound", 400),
        ("iam", "get_role", {"RoleName": "none"}, "NoSuchEntity", 404),
        ("s3", "get_object", {"Bucket": "none-of-it", "Key": "k"}, "NoSuchBucket", 404),
        ("s3", "head_bucket", {"Bucket": "none-of-it"}, "404", 404),
        ("efs", "describe_file_systems", {"FileSystemId": "fs-0123456789abcdef0"}, "FileSystemNotFound", 404),
        ("emr", "describe_cluster", {"ClusterId": "j-NONE"}, "InvalidRequestException", 400),
        ("ssm", "get_parameter", {"Name": "none"}, "ParameterNotFound", 400),
        ("autoscaling", "delete_auto_scaling_group", {"AutoScalingGroupName": "none"}, "ValidationError", 400),
    ],
)
def test_errors(aws: Aws, service: str, operation: str, params: dict[str, Any], code: str, status: int) -> None:
    with pytest.raises(ClientError) as caught:
        getattr(aws(service), operation)(**params)
    answer = caught.value.response
    assert (answer["Error"]["Code"], answer["ResponseMetadata"]["HTTPStatusCode"]) == (code, status)
    call = aws.cloud.calls.since()[-1]
    assert call["status"] == status
    assert call["result"] != "ok"


@pytest.mark.parametrize("service", ["ec2", "iam", "s3", "efs", "ssm", "autoscaling"])
def test_a_fault_looks_like_the_services_own_error(aws: Aws, service: str) -> None:
    client = aws(service)
    fault = {"code": "Unwell", "message": "as asked <&>", "status": 503}
    aws.cloud.faults.add("error", {"action": f"{service}:*"}, fault, left=1)
    with pytest.raises(ClientError) as caught:
        ask(client, service)
    answer = caught.value.response
    assert (answer["Error"]["Code"], answer["Error"]["Message"]) == ("Unwell", "as asked <&>")
    assert answer["ResponseMetadata"]["HTTPStatusCode"] == 503
    ask(client, service)
    assert [call["result"] for call in aws.cloud.calls.since()] == ["Unwell", "ok"]


def test_every_call_is_written_down_with_what_it_needed(aws: Aws) -> None:
    aws("ec2").create_vpc(CidrBlock="10.0.0.0/16")
    aws("ec2").describe_vpcs()
    made, seen = aws.cloud.calls.since()
    assert (made["operation"], made["action"], made["writes"]) == ("CreateVpc", "ec2:CreateVpc", True)
    assert (seen["operation"], seen["action"], seen["writes"]) == ("DescribeVpcs", "ec2:DescribeVpcs", False)
    assert (made["region"], made["source"], made["result"], made["status"]) == (REGION, "127.0.0.1", "ok", 200)
    assert made["milliseconds"] > 0
    assert [need["action"] for need in seen["required"]] == ["ec2:DescribeVpcs"]
