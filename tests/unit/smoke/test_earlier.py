"""Earlier clusters are known by the command's tag on any of their resources, and end by it."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest
from ansible_collections.deeplearning.aws.plugins.module_utils.aws.client import AwsError

from tests.smoke import earlier
from tests.smoke.earlier import Earlier, earlier_clusters
from tests.smoke.session import TAG

END = "2026-11-26T10:00:00Z"
NOW = datetime(2026, 11, 26, 10, 0, 1, tzinfo=UTC).timestamp()


def pairs(**tags: str) -> list[dict[str, str]]:
    names = {"cluster": "deeplearning:cluster", "end": TAG}
    return [{"Key": names[name], "Value": value} for name, value in tags.items()]


class Account:
    """Answers with the tags that a test sets, by operation."""

    region, account = "us-east-1", "123456789012"

    def __init__(self, **answers: Any) -> None:
        self.answers = answers

    def pages(self, service: str, operation: str, _key: str, **_params: Any) -> list[Any]:
        return list(self.answers.get(f"{service}_{operation}", []))

    def call(self, service: str, operation: str, **params: Any) -> dict[str, Any]:
        answers = self.answers.get(f"{service}_{operation}", {})
        (name,) = params.values()
        if name not in answers:
            raise AwsError("none", "NoSuchEntity")
        return dict(answers[name])


def clusters(monkeypatch: pytest.MonkeyPatch, names: list[str], **answers: Any) -> list[Earlier]:
    monkeypatch.setattr(earlier, "clusters_in", lambda _aws: names)
    account: Any = Account(**answers)
    return earlier_clusters(account)


def test_a_cluster_is_known_by_the_tag_of_any_resource(monkeypatch: pytest.MonkeyPatch) -> None:
    vpc = [{"ResourceId": "vpc-1", "ResourceType": "vpc", **pair} for pair in pairs(cluster="smoke-1-net", end=END)]
    group = [
        {"ResourceId": "g", "ResourceType": "auto-scaling-group", **pair}
        for pair in pairs(cluster="of-a-group", end=END)
    ]
    actual = clusters(
        monkeypatch,
        ["smoke-1-net", "of-a-group", "of-files", "of-a-role", "of-a-bucket"],
        ec2_describe_tags=vpc,
        autoscaling_describe_tags=group,
        efs_describe_file_systems=[{"Tags": pairs(cluster="of-files", end=END)}],
        iam_get_role={"of-a-role-us-east-1-worker": {"Role": {"Tags": pairs(cluster="of-a-role", end=END)}}},
        s3_get_bucket_tagging={"of-a-bucket-123456789012-us-east-1": {"TagSet": pairs(cluster="of-a-bucket", end=END)}},
    )
    names = ["of-a-bucket", "of-a-group", "of-a-role", "of-files", "smoke-1-net"]
    assert actual == [Earlier(name, END) for name in names]


def test_a_name_alone_or_another_tag_is_not_enough(monkeypatch: pytest.MonkeyPatch) -> None:
    vpc = [{"ResourceId": "vpc-1", "ResourceType": "vpc", **pair} for pair in pairs(cluster="smoke-1-net")]
    other = [{"ResourceId": "vpc-2", "ResourceType": "vpc", **pair} for pair in pairs(end=END)]
    role = {"smoke-1-net-us-east-1-master": {"Role": {"Tags": pairs(cluster="smoke-1-net")}}}
    assert clusters(monkeypatch, ["smoke-1-net"], ec2_describe_tags=vpc + other, iam_get_role=role) == []


@pytest.mark.parametrize("kind", ["instance", "natgateway"])
def test_what_aws_still_shows_after_its_end_is_no_cluster(monkeypatch: pytest.MonkeyPatch, kind: str) -> None:
    gone = [{"ResourceId": "gone", "ResourceType": kind, **pair} for pair in pairs(cluster="smoke-1-net", end=END)]
    assert clusters(monkeypatch, ["smoke-1-net"], ec2_describe_tags=gone) == []


@pytest.mark.parametrize(("end", "has_ended"), [(END, True), ("2026-11-26T10:00:02Z", False), ("soon", False)])
def test_a_time_to_live_ends_at_its_time(end: str, has_ended: bool) -> None:
    cluster = Earlier("smoke-1-net", end)
    assert cluster.has_ended(NOW) is has_ended
    line = "it is destroyed" if has_ended else "To destroy it now: SMOKE_DESTROY=smoke-1-net"
    assert cluster.line(NOW).endswith(line)


def test_credentials_that_are_refused_are_not_taken_for_a_missing_tag(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_words: str, **_params: str) -> None:
        raise AwsError("the credentials have expired", "ExpiredToken", is_fatal=True)

    monkeypatch.setattr(Account, "call", refuse)
    with pytest.raises(AwsError, match="have expired"):
        clusters(monkeypatch, ["smoke-1-net"])
