"""Which files of the code may hold secrets and stay on this machine, and which are included by their paths."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from ansible_collections.deeplearning.aws.plugins.module_utils.contract.errors import UserError
from ansible_collections.deeplearning.aws.plugins.plugin_utils.runs import code_archive

from tests.unit.plugins.runs.code_kit import unpacked

KEY = "-----BEGIN RSA PRIVATE KEY-----\nabc\n-----END RSA PRIVATE KEY-----\n"
CERTIFICATE = "-----BEGIN CERTIFICATE-----\nabc\n-----END CERTIFICATE-----\n"


@pytest.mark.parametrize(
    ("name", "content", "is_sent"),
    [
        *((name, "x", False) for name in ("credentials", "Credentials.json", "credentials.csv", "credentials-dev.ini")),
        *((name, "x", False) for name in ("secrets.yml", "SECRETS.toml", "secrets.sh", "service-account-dev.json")),
        *((name, "{}", False) for name in ("terraform.tfstate", "terraform.tfstate.backup", "x.tfstate.d/y")),
        *((name, "x", True) for name in ("credentials.py", "secrets.py", "Credentials.java", "id_rsa_tools.cu")),
        *((name, "x", True) for name in ("secret.yml", "my_credentials.yml", "account.json", "tfstate.md")),
        ("credentials/__init__.py", "", True),
        ("credentials/deep/store.py", "", True),
        ("credentials/deep/store.json", "{}", False),
        ("secrets.d/store.py", "", False),
        (".env.py", "", False),
        # Certificates without a key are sent.
        ("ca.pem", CERTIFICATE * 2, True),
        ("server.key", CERTIFICATE, True),
        ("public.pem", "# ours\n-----BEGIN PUBLIC KEY-----\n", True),
        ("server.pem", CERTIFICATE + KEY, False),
        ("server.pem", KEY.replace("RSA", "ENCRYPTED"), False),
        ("server.key", "\x00binary", False),
        ("empty.pem", "", False),
        ("id_rsa.pem", CERTIFICATE, False),
        ("credentials.pem", CERTIFICATE, False),
        # A private key has any name.
        ("deploy_key", "\n" + KEY.replace("RSA", "OPENSSH"), False),
        ("notes.txt", KEY, False),
        ("notes.txt", "How to write -----BEGIN RSA PRIVATE KEY-----", True),
        ("server.crt", CERTIFICATE + KEY, False),
        ("server.crt", CERTIFICATE, True),
        ("project-1a2b3c.json", '{"private_key": "-----BEGIN PRIVATE KEY-----\\nabc"}', False),
        ("test_keys.py", KEY, True),
    ],
)
def test_what_may_hold_a_secret(tmp_path: Path, name: str, content: str, is_sent: bool) -> None:
    for file, text in ((name, content), ("train.py", "")):
        (tmp_path / file).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / file).write_text(text)
    packed = code_archive.pack(tmp_path / "train.py", tmp_path)
    assert (name in unpacked(packed)) is is_sent
    assert any(f"{name}/".startswith(f"{left_out}/") for left_out in packed.left_out) is not is_sent


def test_a_large_certificate_and_links_and_pipes_are_not_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(code_archive, "MOST_SEARCHED", 100)
    (tmp_path / "large.pem").write_text(CERTIFICATE + "x" * 100)
    (tmp_path / "link.pem").symlink_to("ca.crt")
    (tmp_path / "ca.crt").symlink_to("/dev/zero")
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "train.py").write_text("")
    packed = code_archive.pack(tmp_path / "train.py", tmp_path)
    assert packed.left_out == ("large.pem", "link.pem")
    assert set(unpacked(packed)) == {"ca.crt", "pipe", "train.py"}


@pytest.mark.parametrize(
    ("include", "left_out"),
    [
        (["config/credentials.json"], {".aws", "config/b.pem"}),
        (["./config/../config/credentials.json"], {".aws", "config/b.pem"}),
        (["{folder}/config/credentials.json"], {".aws", "config/b.pem"}),
        (["src/config/credentials.json"], {".aws", "config/b.pem"}),
        (["config"], {".aws"}),
        ([".aws"], {"config/b.pem", "config/credentials.json"}),
        ([".aws/config"], {".aws/credentials", ".aws/tool.py", "config/b.pem", "config/credentials.json"}),
        (["train.py"], {".aws", "config/b.pem", "config/credentials.json"}),
    ],
)
def test_what_is_included_by_its_path_is_sent(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, include: list[str], left_out: set[str]
) -> None:
    folder = tmp_path / "src"
    names = ("config/credentials.json", "config/b.pem", ".aws/config", ".aws/credentials", ".aws/tool.py", "train.py")
    for name in names:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text("x")
    monkeypatch.chdir(tmp_path)
    packed = code_archive.pack(folder / "train.py", folder, [text.format(folder=folder) for text in include])
    assert set(packed.left_out) == left_out
    assert set(unpacked(packed)) == {name for name in names if not {name, name.partition("/")[0]} & left_out}


@pytest.mark.parametrize("text", ["none.pem", "../outside.pem", "/etc/passwd", ".git/config", "..", "~/x", "train"])
def test_a_path_at_which_nothing_can_be_sent_is_refused(tmp_path: Path, text: str) -> None:
    folder = tmp_path / "src"
    (folder / ".git").mkdir(parents=True)
    for name in ("outside.pem", "src/.git/config", "src/train.py"):
        (tmp_path / name).write_text("x")
    with pytest.raises(UserError, match="^code_include is .*, and nothing of that path can be sent: give the path"):
        code_archive.pack(folder / "train.py", folder, [text])
    with pytest.raises(UserError, match="without a folder only the script is sent"):
        code_archive.pack(folder / "train.py", None, [text])


def test_a_script_that_is_a_link_to_a_secret_is_refused(tmp_path: Path) -> None:
    for name in ("home/.aws/credentials", "home/.ssh/train.py", "project/lib.py"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("x")
    script = tmp_path / "project/train.py"
    for target in ("../home/.aws/credentials", "../home/.ssh/train.py"):
        script.unlink(missing_ok=True)
        script.symlink_to(target)
        for folder in (None, tmp_path / "project"):
            with pytest.raises(UserError, match="a link to .*, whose name is that of a file with secrets"):
                code_archive.pack(script, folder)
