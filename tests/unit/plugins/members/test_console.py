"""A machine's console: the latest output, and of an ended machine what AWS posted."""

from __future__ import annotations

from typing import Any

import pytest
from ansible_collections.deeplearning.aws.plugins.module_utils.aws.client import AwsError
from ansible_collections.deeplearning.aws.plugins.plugin_utils.members.console import console_output, console_outputs


class FakeAws:
    def __init__(self, latest: str | AwsError, posted: str) -> None:
        self.latest, self.posted, self.reads = latest, posted, 0

    def call(self, service: str, operation: str, **params: Any) -> dict[str, Any]:
        assert (service, operation, params.pop("InstanceId")) == ("ec2", "get_console_output", "i-1")
        self.reads += 1
        output = self.latest if params == {"Latest": True} else self.posted
        if isinstance(output, AwsError):
            raise output
        return {"Output": output} if output else {}


@pytest.mark.parametrize(
    ("latest", "posted", "may_have_ended", "output", "reads"),
    [
        ("new", "old", False, "new", 1),
        ("new", "old", True, "new", 1),
        ("", "old", False, "", 1),
        ("", "old", True, "old", 2),
        ("", "", True, "", 2),
        (AwsError("Not Nitro.", "UnsupportedOperation"), "old", False, "old", 2),
        (AwsError("Not Nitro.", "InvalidParameterCombination"), "", False, "", 2),
    ],
)
def test_the_output(latest: str | AwsError, posted: str, may_have_ended: bool, output: str, reads: int) -> None:
    aws: Any = FakeAws(latest, posted)
    assert (console_output(aws, "i-1", may_have_ended), aws.reads) == (output, reads)


@pytest.mark.parametrize(
    ("latest", "posted", "outputs"),
    [
        ("b c", "a b", ["b c", "a b"]),
        ("a b c", "a b", ["a b c"]),
        ("", "a", ["a"]),
        ("a", "", ["a"]),
        ("", "", []),
        (AwsError("Not Nitro.", "UnsupportedOperation"), "a", ["a"]),
    ],
)
def test_the_latest_and_the_posted_output(latest: str | AwsError, posted: str, outputs: list[str]) -> None:
    aws: Any = FakeAws(latest, posted)
    assert console_outputs(aws, "i-1") == outputs


def test_a_missing_permission_is_raised() -> None:
    aws: Any = FakeAws(AwsError("Denied.", "UnauthorizedOperation"), "old")
    with pytest.raises(AwsError, match="Denied"):
        console_output(aws, "i-1", may_have_ended=True)
