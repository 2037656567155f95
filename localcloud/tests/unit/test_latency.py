"""How long things take: profiles by name, by factor, by file; one sentence where none can be made out."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from localcloud.core.errors import Refusal
from localcloud.core.latency import AWS, Latency, latency_from


def seconds_of(latency: Latency) -> dict[str, float]:
    return {what: latency.of(what) for what in AWS}


def test_none_and_aws() -> None:
    assert set(seconds_of(latency_from("none")).values()) == {0.0}
    assert seconds_of(latency_from("aws")) == AWS
    assert latency_from("aws").of("nat_gateway_available") == 95


@pytest.mark.parametrize("profile, seconds", [("aws*0.1", 9.5), ("aws*2", 190), ("aws*0", 0), ("aws*1e-1", 9.5)])
def test_aws_by_a_factor(profile: str, seconds: float) -> None:
    latency = latency_from(profile)
    assert latency.name == profile
    assert latency.of("nat_gateway_available") == pytest.approx(seconds)


def test_a_file_names_what_it_names_and_nothing_else_takes_time(tmp_path: Path) -> None:
    path = tmp_path / "profile.json"
    path.write_text('{"call": 0.5, "instance_running": 3}', encoding="utf-8")
    latency = latency_from(str(path))
    assert {what: seconds for what, seconds in seconds_of(latency).items() if seconds} == {
        "call": 0.5,
        "instance_running": 3.0,
    }


def test_a_file_is_found_again_from_another_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "profile.json").write_text('{"call": 0.5}', encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    name = latency_from("profile.json").name
    monkeypatch.chdir(os.path.sep)
    assert latency_from(name).of("call") == 0.5


def test_what_no_profile_knows_is_a_mistake_of_ours() -> None:
    with pytest.raises(KeyError):
        latency_from("aws").of("lunch")


@pytest.mark.parametrize("profile", ["aws*", "aws*fast", "aws*-1", "aws*nan", "aws*inf", "aws**2", "aws*0.1*2"])
def test_factors_that_are_none(profile: str) -> None:
    if profile == "aws*":
        assert seconds_of(latency_from(profile)) == AWS
        return
    with pytest.raises(Refusal, match="must be a number, 0 or more. Example: --latency 'aws\\*0.1'$"):
        latency_from(profile)


@pytest.mark.parametrize(
    "content, words",
    [
        (None, r"cannot be read \(No such file or directory\)"),
        ("", "is not JSON"),
        ("{'call': 1}", "is not JSON"),
        (b"\xff\xfe", "is not JSON"),
        ("[1]", "is not a JSON object"),
        ('{"lunch": 1}', "names lunch, which nothing waits for"),
        ('{"call": "1"}', "gives '1' for call: give seconds, 0 or more"),
        ('{"call": -1}', "gives -1 for call"),
        ('{"call": true}', "gives True for call"),
        ('{"call": null}', "gives None for call"),
        ('{"call": NaN}', "gives nan for call"),
        ('{"call": 1e999}', "gives inf for call"),
    ],
)
def test_bad_files_are_one_sentence_that_says_what_to_give(
    tmp_path: Path, content: str | bytes | None, words: str
) -> None:
    path = tmp_path / "profile.json"
    if content is not None:
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
    with pytest.raises(Refusal, match=words) as caught:
        latency_from(str(path))
    assert len(str(caught.value).splitlines()) == 1
    assert "Give none, aws, aws*FACTOR or a JSON file" in str(caught.value)


def test_a_folder_is_no_profile(tmp_path: Path) -> None:
    with pytest.raises(Refusal, match="cannot be read"):
        latency_from(str(tmp_path))
