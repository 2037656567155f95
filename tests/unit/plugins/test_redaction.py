"""What is a secret in a log, and what is not."""

from __future__ import annotations

import json
import tarfile
import time
from io import BytesIO

import pytest
from ansible_collections.deeplearning.aws.plugins.plugin_utils import redaction
from ansible_collections.deeplearning.aws.plugins.plugin_utils.redaction import REMOVED, redact
from ansible_collections.deeplearning.aws.plugins.plugin_utils.untrusted import printable, without_sequences
from ansible_collections.deeplearning.aws.plugins.plugin_utils.views.logs import Archive

KEY_BODY = "\n".join(["b3BlbnNzaC1rZXktdjEAAAAABG5vbmUAAAAEbm9uZQAAAAAAAAABAAAAMwAAAAtzc2gtZW"] * 5)
PRIVATE_KEY = f"-----BEGIN OPENSSH PRIVATE KEY-----\n{KEY_BODY}\n-----END OPENSSH PRIVATE KEY-----"
AWS_KEY = "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY"
SESSION = "IQoJb3JpZ2luX2VjEDsaCXVzLWVhc3QtMSJHMEUCIQD" * 6

WANDB = "0a1b2c3d4e5f60718293a4b5c6d7e8f901234567"
KAGGLE = "0123456789abcdef0123456789abcdef"
FORMS = [
    "github_pat_11ABCDEFG0abcdefghijkl_mnopqrstuvwxyz",
    "ghs_16C7e42F292c6912E7710c838347Ae178B4a",
    "glpat-abcdefghijklmnopqrst",
    "hf_abcdefghijklmnopqrstuvwxyz",
    "npm_abcdefghijklmnopqrstuvwxyz0123456789",
    "pypi-AgEIcHlwaS5vcmcCJGFiY2RlZg",
    "nvapi-abcdefghijklmnopqrstuvwxyz",
    "dckr_pat_abcdefghijklmnopqrstuvwxyz",
    "xoxb-123456789012-abcdefghijkl",
    "sk-proj-abcdefghijklmnopqrst",
    "sk_live_abcdefghijklmnopqrstuvwx",
    "rk_test_abcdefghijklmnopqrstuvwx",
    "AIzaSyA-abcdefghijklmnopqrstuvwxyz01234",
    "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0In0.c2lnbmF0dXJl",
]

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
    # What stands in front shows that these are secret.
    (f"wandb login {WANDB}", WANDB),
    (f"wandb: using {WANDB}", WANDB),
    (f'{{"key": "{WANDB}"}}', WANDB),
    ("machine api.wandb.ai login user password abc123", "abc123"),
    ("machine x\n  login user\n  account a\n  password abc123\n", "abc123"),
    ("export MYSQL_PASS=hunter2", "hunter2"),
    ("MYSQL_PWD=hunter2", "hunter2"),
    ("SSHPASS='a b'", "a b"),
    ("train.py --db-pass hunter2", "hunter2"),
    ("HTTP_PROXY_AUTH=me:hunter2", "hunter2"),
    ('{"auths": {"h": {"auth": "bWU6aHVudGVyMg=="}}}', "bWU6aHVudGVyMg=="),
    ("AccountName=x;AccountKey=abc123", "abc123"),
    ("pip install git+https://0123abcd@example.org/x.git", "0123abcd"),
    ("posted to https://hooks.slack.com/services/T0123456/B0123456/abcdefgh", "abcdefgh"),
    ("redis://:hunter2@10.0.0.4:6379", "hunter2"),
    ("curl -u me:hunter2 https://example.org", "hunter2"),
    ("curl --user 'me:hunter2' https://example.org", "hunter2"),
    ("sshpass -p hunter2 ssh me@host", "hunter2"),
    ("sshpass -phunter2 ssh me@host", "hunter2"),
    ("sshpass -v -p 'hunter 2' ssh me@host", "hunter 2"),
    (json.dumps(["sshpass", "-p", "hunter2", "ssh"]), "hunter2"),
    (json.dumps({"line": json.dumps(["sshpass", "-p", "hunter2", "ssh"])}), "hunter2"),
    ("mysql -phunter2 -u me data", "hunter2"),
    ("mysql -u me -h db.example.org -phunter2 data", "hunter2"),
    ("mysqldump --single-transaction -p'hunter 2' data", "hunter 2"),
    ("mariadb-dump -u me -phunter2", "hunter2"),
    (json.dumps(["mysql", "-u", "me", "-phunter2"]), "hunter2"),
    (f'{{"username":"me","key":"{KAGGLE}"}}', KAGGLE),
    (f'{{\n  "username": "me",\n  "key": "{KAGGLE}"\n}}', KAGGLE),
    (f"{{'key': '{KAGGLE}', 'username': 'me'}}", KAGGLE),
    (json.dumps({"line": json.dumps({"username": "me", "key": KAGGLE})}), KAGGLE),
    ("Authorization: token abc123", "abc123"),
    ('{"Authorization": "Digest user=me, response=abc123"}', "abc123"),
    ("Cookie: a=1; session=abc123", "abc123"),
    # Their form does.
    ("Bearer abcdefghijklmnop1234", "abcdefghijklmnop1234"),
    *((f"used {secret} there", secret) for secret in FORMS),
    (PRIVATE_KEY, "b3BlbnNzaC1rZXktdjEA"),
    (PRIVATE_KEY.replace("OPENSSH PRIVATE KEY", "PGP PRIVATE KEY BLOCK"), "b3BlbnNzaC1rZXktdjEA"),
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
    f'{{"url": "https://example.org/x.git", "ref": "v1", "commit": "{WANDB}"}}',
    f"HEAD: {WANDB}",
    f"git+https://example.org/x.git@{WANDB}",
    f"https://example.org/raw/{WANDB}/train.py",
    f"/efs/cache/{WANDB}",
    f"{WANDB}{WANDB[:24]}",
    f'{{"key": "{KAGGLE}", "size": 7}}',
    f"md5 {KAGGLE}",
    "sshpass is not installed, and -p is not set",
    "mysql -P 3306 -p data",
    "docker run -p 3306:3306 mysql",
    "docker run mysql -p3306:3306",
    "the pages-per-second of mysql were 7",
    "mkdir -p /efs/mysql; cp -p a b",
    "mysql is up; mkdir -pv /efs/data",
    "PWD=/home/ubuntu",
    "OLDPWD=/efs/runs",
    "forward_pass: 0.12 backward_pass=0.31",
    "pam_unix(sshd:auth): authentication failure",
    "docker run --user 1000:1000 x",
    "journalctl -u deeplearning-run-r1:0",
    "https://example.org/x?mail=me@example.org",
    "disk-usage-of-this-machine is 40 percent",
    "AROAIOSFODNN7EXAMPLE01:i-0123456789abcdef0",
    "/opt/deeplearning/env/pytorch/lib/python3.11/site-packages/torch/nn/modules/module.py",
]


@pytest.mark.parametrize("text", KEPT)
def test_what_explains_a_problem_stays(text: str) -> None:
    assert redact(text) == text


def test_a_name_and_the_rest_of_the_line_stay() -> None:
    assert redact("login --password hunter2 --user me") == f"login --password {REMOVED} --user me"
    assert redact("token=abc&user=me") == f"token={REMOVED}&user=me"


COLOURED = [
    ("HF_TOK\x1b[0mEN=abc123", "abc123"),
    ("HF_TOKEN\x1b[31m=\x1b[0mabc123", "abc123"),
    ("\x1b]0;a title\x07PASS\x9b1mWORD: abc123", "abc123"),
    (json.dumps({"line": "DB_PASS\x1b[1;32mWORD=abc123"}), "abc123"),
    ("hf_abcdef\x1b[Kghijklmnopqrstuvwxyz", "ghijklmnopqrstuvwxyz"),
]


@pytest.mark.parametrize(("text", "secret"), COLOURED)
def test_in_an_archive_a_colour_hides_no_secret(text: str, secret: str) -> None:
    packed = BytesIO()
    with tarfile.open(fileobj=packed, mode="w") as file:
        Archive(file, "logs").add("x", text)
    packed.seek(0)
    with tarfile.open(fileobj=packed) as file:
        content = file.extractfile("logs/x")
        written = content.read().decode() if content else ""
    assert REMOVED in written and secret not in written and "[" not in written


def test_each_pattern_has_a_secret() -> None:
    for pattern in redaction._PATTERNS:
        assert any(pattern.search(text) for text, _secret in SECRETS), pattern.pattern


BEGINNINGS = [
    "token", 'token="', "token='", 'token=\\"', "--token", "--a ", "authorization: ", "cookie", "Bearer ", "_pass",
    "_pwd=", "login ", "login a account b ", "login a password ", "-u a:", "--user=a", "://", "://a:", "http://a",
    "sshpass ", "sshpass -v ", "sshpass -p", "mysql ", "mysql -p", '"username":"a",', '"username":"', '"key":"0',
    f'"key":"{KAGGLE}"',
    "hooks.slack.com/services/", "AKIA", "A1a/", "AAAA", "ghp_", "sk_live_", "AIza", "eyJ", "eyJaaaaaaaa.", f"{WANDB} ",
    "-----BEGIN ", "-----BEGIN PRIVATE KEY-----", "-----END PRIVATE KEY-----", "\x1b[", "\x1b]", "\\u001b[",
]  # fmt: skip
"""Of what each pattern matches, as far as it can get before it fails."""


@pytest.mark.parametrize("beginning", BEGINNINGS)
@pytest.mark.parametrize("rest", ["", "aaaaaaaa-"])
def test_time_grows_with_the_text_and_not_with_its_square(beginning: str, rest: str) -> None:
    unit = beginning + rest

    def seconds(size: int) -> float:
        text = unit * (size // len(unit))
        started = time.process_time()
        redact(printable(without_sequences(text)))
        return time.process_time() - started

    short = min(seconds(2**10) for _attempt in range(5))
    # 64 times the text. Its square would be 4096 times; between them there is room for a machine that does other work.
    assert seconds(2**16) <= 512 * short
