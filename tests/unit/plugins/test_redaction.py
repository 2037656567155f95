"""What is a secret in a log, and what is not."""

from __future__ import annotations

import json
import time

import pytest
from ansible_collections.deeplearning.aws.plugins.plugin_utils.redaction import REMOVED, redact

KEY_BODY = "\n".join(["b3BlbnNzaC1rZXktdjEAAAAABG5vbmUAAAAEbm9uZQAAAAAAAAABAAAAMwAAAAtzc2gtZW"] * 5)
PRIVATE_KEY = f"-----BEGIN OPENSSH PRIVATE KEY-----\n{KEY_BODY}\n-----END OPENSSH PRIVATE KEY-----"
AWS_KEY = "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY"
SESSION = "IQoJb3JpZ2luX2VjEDsaCXVzLWVhc3QtMSJHMEUCIQD" * 6

SECRETS = [
    ("AWS_ACCESS_KEY_ID=AKIAIOSFODNN7EXAMPLE", "AKIAIOSFODNN7EXAMPLE"),
    ("caller ASIAIOSFODNN7EXAMPLE was denied", "ASIAIOSFODNN7EXAMPLE"),
    (f"aws_secret_access_key = {AWS_KEY}", AWS_KEY),
    (f"the key was {AWS_KEY}.", AWS_KEY),
    (f'{{"SessionToken": "{SESSION}"}}', SESSION),
    (f"printed {SESSION} alone", SESSION),
    ("password: hunter2", "hunter2"),
    ("DB_PASSWORD='a b c' other=1", "a b c"),
    ("train.py --api-key k-123 --epochs 2", "k-123"),
    ('"script_args": ["--wandb-token", "abc123", "--epochs", "2"]', "abc123"),
    ('{"HF_TOKEN": "hf_abcdefghijklmnopqrst"}', "hf_abcdefghijklmnopqrst"),
    ("cloning https://me:s3cr3t@example.org/x.git", "s3cr3t"),
    ("Authorization: Bearer abcdefghijklmnopqrstuvwxyz", "abcdefghijklmnopqrstuvwxyz"),
    ("header eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0In0.c2lnbmF0dXJl", "eyJzdWIiOiIxMjM0In0"),
    ("https://b.s3.amazonaws.com/k?X-Amz-Credential=me%2F1&X-Amz-Signature=0a1b2c&x=1", "0a1b2c"),
    ("pushed with ghp_16C7e42F292c6912E7710c838347Ae178B4a", "ghp_16C7e42F292c6912E7710c838347Ae178B4a"),
    (json.dumps({"line": json.dumps({"token": "in a text"})}), "in a text"),
    (PRIVATE_KEY, "b3BlbnNzaC1rZXktdjEA"),
    (PRIVATE_KEY.replace("\n", "\\n"), "b3BlbnNzaC1rZXktdjEA"),
    (PRIVATE_KEY.replace("\n", "\nNov 23 04:00:00 ip-10-0-0-1 train[7]: "), "b3BlbnNzaC1rZXktdjEA"),
    (PRIVATE_KEY.partition("\n")[2], "b3BlbnNzaC1rZXktdjEA"),
    (PRIVATE_KEY.rpartition("\n")[0], "b3BlbnNzaC1rZXktdjEA"),
]


@pytest.mark.parametrize(("text", "secret"), SECRETS)
def test_a_secret_is_removed_and_the_text_around_it_stays(text: str, secret: str) -> None:
    assert secret in text
    redacted = redact(f"before\n{text}\n")
    assert secret not in redacted and REMOVED in redacted, redacted


KEPT = [
    "run pytorch-20261122-175847 has finished",
    "commit 3062c9c0123456789abcdef0123456789abcdef0",
    "bundle 9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08",
    "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIEx5a1l8Q0hVtq3n7Zr0d2dYk3o4cQ1t8m5a6b7c8d9e",
    "train.py --data /efs/data/cifar10 --epochs 2",
    "Accepted publickey for ubuntu from 10.0.0.7 port 4022 ssh2",
    "git@github.com:me/x.git at ssh://git@github.com/me/x.git",
    "AROAIOSFODNN7EXAMPLE01:i-0123456789abcdef0",
    "/opt/deeplearning/env/pytorch/lib/python3.11/site-packages/torch/nn/modules/module.py",
]


@pytest.mark.parametrize("text", KEPT)
def test_what_explains_a_problem_stays(text: str) -> None:
    assert redact(text) == text


def test_a_name_and_the_rest_of_the_line_stay() -> None:
    assert redact("login --password hunter2 --user me") == f"login --password {REMOVED} --user me"
    assert redact("token=abc&user=me") == f"token={REMOVED}&user=me"


@pytest.mark.parametrize(
    "unit",
    ["-", "a", "token", 'token="', "token='", "--token", "://a:", "-----BEGIN PRIVATE KEY-----", "A1a/", "eyJ", "AAAA"],
)
def test_no_text_takes_long(unit: str) -> None:
    started = time.process_time()
    redact(unit * (2**18 // len(unit)))
    assert time.process_time() - started < 5
