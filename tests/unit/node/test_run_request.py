"""What a run may be asked to be: each wrong request is one sentence."""

from __future__ import annotations

from typing import Any

import pytest
from deeplearning.contract import git_source, schema
from deeplearning.contract.errors import UserError
from deeplearning.contract.run_request import validate
from deeplearning.run import source

GOOD = {"framework": "pytorch", "asked_by": "me"}


def test_a_request_keeps_its_values_without_null() -> None:
    request = {**GOOD, "script_args": ["a b", "$x", "it's", ""], "nodes": ["deeplearning-worker2"], "data": None}
    assert validate(request) == {key: value for key, value in request.items() if value is not None}


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        ({"framework": None}, "framework is missing"),
        ({"framework": "caffe"}, "framework is 'caffe': give one of tensorflow, mxnet, pytorch, tensorpack"),
        ({"distribution": "dist_sync"}, "dist_sync, which pytorch does not have: give one of ddp, horovod"),
        ({"scripts": "x"}, "no scripts: is script meant?"),
        ({"zzz": 1}, "no zzz: it has run_id, framework"),
        ({"nodes": 0}, "nodes is 0: give a whole number, 1 or more"),
        ({"nodes": True}, "nodes is True"),
        ({"nodes": []}, "a number, or a list of members' names"),
        ({"nodes": ["a", "a"]}, "names each member once"),
        ({"nodes": "2"}, "nodes is '2'"),
        ({"processes_per_node": -1}, "processes_per_node is -1"),
        ({"max_restarts": 1.5}, "max_restarts is 1.5"),
        ({"script_args": "--lr 0.1"}, "script_args is '--lr 0.1': give a list"),
        ({"script_args": [1]}, "script_args is [1]: give a list of strings"),
        ({"environment": {"A": 1}}, "a map of strings"),
        ({"environment": {"A=B": "1"}}, "a map of strings"),
        ({"run_id": "../x"}, "run_id is '../x': give a run's id"),
        ({"run_id": "UPPER"}, "a run's id"),
        ({"run_id": "a:b"}, "a run's id"),
        ({"busy": "maybe"}, "busy is 'maybe': give one of wait, refuse"),
        ({"python": "python3"}, "an absolute path"),
        ({"asked_by": None}, "asked_by is missing"),
        ({"code": "/efs/x"}, "code is given without script"),
        ({"framework": "mxnet", "distribution": "device", "nodes": 2}, "on one node, and nodes is 2: give nodes=1"),
        ({"framework": "mxnet", "script_args": ["--data=s3://b/k"]}, "this MXNet cannot read S3"),
        ({"resume": "r1"}, "framework cannot be changed when a run is resumed"),
    ],
)
def test_an_invalid_request_is_one_sentence(changed: dict[str, Any], words: str) -> None:
    with pytest.raises(UserError) as refused:
        validate({**GOOD, **changed})
    assert words in str(refused.value)
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize("request_", [None, [], "x"])
def test_other_values_than_objects_are_refused(request_: Any) -> None:
    with pytest.raises(UserError, match="JSON object"):
        validate(request_)


def test_a_run_is_resumed_with_other_arguments() -> None:
    assert validate({"resume": "r1", "asked_by": "me", "script_args": ["--epochs", "9"]})["resume"] == "r1"


@pytest.mark.parametrize(
    ("script", "expected"),
    [
        ("git+https://h/me/x.git@v1.2:a/train.py", ("https://h/me/x.git", "v1.2", "a/train.py")),
        ("git+git@h:me/x.git@main:train.py", ("git@h:me/x.git", "main", "train.py")),
        ("git+ssh://git@h:22/x@0123abc:t.py", ("ssh://git@h:22/x", "0123abc", "t.py")),
    ],
)
def test_git_sources(script: str, expected: tuple[str, str, str]) -> None:
    parsed = source.git_source(script)
    assert (parsed.url, parsed.ref, parsed.path) == expected


@pytest.mark.parametrize(
    "script", ["git+https://h/x:train.py", "git+https://h/x@v1", "git+https://h/x@v1:/etc/x", "git+https://h/x@v1:../x"]
)
def test_a_git_source_without_its_parts_is_refused(script: str) -> None:
    with pytest.raises(UserError, match="git\\+URL@ref:path"):
        source.git_source(script)


@pytest.mark.parametrize("login", ["me:token", "token", "me:to@ken", "me:to:k@en@"])
def test_secrets_in_a_url_are_hidden(login: str) -> None:
    assert git_source.without_secret(f"fatal: https://{login}@h/x failed") == "fatal: https://h/x failed"


@pytest.mark.parametrize("script", ["https://me:12/s3cret@h", "https://me:12/s3c@ret@h/x", "HTTPS://me:a@b/s3cret@h/x"])
def test_a_password_that_looks_like_a_path_is_not_shown(script: str) -> None:
    with pytest.raises(UserError, match=r"script is git\+https://<hidden>: give git\+URL@ref:path") as refused:
        source.git_source(f"git+{script}:/t.py".replace("HTTPS", "https"))
    shown = git_source.without_secret(f"fatal: unable to access '{script}/': Could not resolve host: me")
    assert shown.lower() == "fatal: unable to access 'https://<hidden>': could not resolve host: me"
    assert "s3c" not in str(refused.value) and "ret@" not in str(refused.value)


@pytest.mark.parametrize(
    ("login", "user", "password"),
    [
        ("me:token", "me", "token"),
        ("token", "token", ""),
        ("me:to@ken", "me", "to@ken"),
        ("m%40e:to%2Fken:2", "m@e", "to/ken:2"),
    ],
)
def test_a_url_is_split_into_a_public_part_and_the_login(login: str, user: str, password: str) -> None:
    url, environment = source.split_login(f"HTTPS://{login}@h:8443/x.git")
    assert url == "HTTPS://h:8443/x.git"
    assert (environment["DEEPLEARNING_GIT_USER"], environment["DEEPLEARNING_GIT_PASSWORD"]) == (user, password)


@pytest.mark.parametrize(
    "url", ["https://h/x.git", "https://[2001:db8::1]:8443/x@y", "git@h:me/x.git", "ssh://git@h:22/x", "/efs/models"]
)
def test_a_url_without_a_password_stays_as_it_is(url: str) -> None:
    assert source.split_login(url) == (url, {})


@pytest.mark.parametrize("url", ["https://me:to/ken@h/x", "ssh://me:token@h/x", "http://me:t@h:port/x"])
def test_a_password_that_git_cannot_be_given_is_refused_and_not_shown(url: str) -> None:
    with pytest.raises(UserError, match="write special characters as %XX") as refused:
        source.split_login(url)
    assert "token" not in str(refused.value) and "to/ken" not in str(refused.value)


@pytest.mark.parametrize(
    "changed",
    [
        {"environment": {"A": "s3cret", "B": 1}},
        {"environment": "s3cret"},
        {"script": "git+https://me:s3cret@h/x@v1:t.py\0"},
    ],
)
def test_a_refusal_shows_no_secret(changed: dict[str, Any]) -> None:
    with pytest.raises(UserError, match=f"^{next(iter(changed))} is ") as refused:
        validate({**GOOD, **changed})
    assert "s3cret" not in str(refused.value)


def test_a_wrong_record_shows_no_environment() -> None:
    with pytest.raises(UserError, match="^run.json: environment is <hidden>, not ") as refused:
        schema.validate_part({"environment": "s3cret"}, {"environment": schema.boolean}, "run.json")
    assert "s3cret" not in str(refused.value)


def test_a_wrong_git_source_is_refused_without_its_password() -> None:
    with pytest.raises(UserError, match=r"script is git\+https://h/x:t.py: give") as refused:
        source.git_source("git+https://me:s3cr@et@h/x:t.py")
    assert "s3cr" not in str(refused.value)
