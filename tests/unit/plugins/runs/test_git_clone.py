"""Code in a repository: this machine clones it with its own git, and sends what a ref has."""

from __future__ import annotations

import base64
import contextlib
import functools
import io
import os
import subprocess
import tarfile
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.deeplearning.aws.plugins.module_utils.contract.errors import UserError
from ansible_collections.deeplearning.aws.plugins.plugin_utils.runs import code_archive, git_clone

GIT_SETTINGS = {
    "user.name": "me",
    "user.email": "me@example.com",
    # Submodules by a path are refused otherwise.
    "protocol.file.allow": "always",
    "init.defaultBranch": "main",
}


@pytest.fixture
def git(monkeypatch: pytest.MonkeyPatch) -> Callable[..., str]:
    monkeypatch.setenv("GIT_CONFIG_COUNT", str(len(GIT_SETTINGS)))
    for number, (key, value) in enumerate(GIT_SETTINGS.items()):
        monkeypatch.setenv(f"GIT_CONFIG_KEY_{number}", key)
        monkeypatch.setenv(f"GIT_CONFIG_VALUE_{number}", value)

    def git(*words: str | Path) -> str:
        return subprocess.run(["git", *words], capture_output=True, text=True, check=True).stdout.strip()

    return git


def committed(git: Callable[..., str], folder: Path, name: str, text: str) -> str:
    """Commit a file, and return the commit."""
    if not folder.exists():
        git("init", "--quiet", folder)
    (folder / name).parent.mkdir(exist_ok=True)
    (folder / name).write_text(text)
    git("-C", folder, "add", ".")
    git("-C", folder, "commit", "--quiet", "-m", name)
    return git("-C", folder, "rev-parse", "HEAD")


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The operator's, without settings of git. Temporary folders are here, too."""
    for name in ("home", "temporary"):
        (tmp_path / name).mkdir()
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.setenv("TMPDIR", str(tmp_path / "temporary"))
    monkeypatch.setattr("tempfile.tempdir", None)
    return tmp_path / "home"


def clone(script: str) -> tuple[dict[str, str], dict[str, str]]:
    """Return the texts of the files that a script comes with, and the record of its repository."""
    source = git_clone.parse(script)
    assert source, script
    with git_clone.cloned(source) as (tree, repository):
        assert tree.stat().st_mode & 0o777 == 0o700
        files = {str(path.relative_to(tree)): path for path in tree.rglob("*") if path.is_file()}
        texts = {name: path.read_text() for name, path in files.items() if not name.startswith(".git/")}
    assert not tree.exists()
    return texts, repository


@dataclass
class Origin:
    url: str
    first: str
    """A commit with the tag v1; the branch feature/x has another one, main a third."""
    main: str


@pytest.fixture
def origin(tmp_path: Path, git: Callable[..., str]) -> Origin:
    """A bare repository with some history."""
    models = tmp_path / "models"
    first = committed(git, models, "cifar/train.py", "first")
    git("-C", models, "tag", "v1")
    git("-C", models, "checkout", "--quiet", "-b", "feature/x")
    committed(git, models, "cifar/train.py", "feature")
    git("-C", models, "checkout", "--quiet", "main")
    main = committed(git, models, "cifar/train.py", "main")
    git("clone", "--quiet", "--bare", models, tmp_path / "models.git")
    return Origin(f"file://{tmp_path}/models.git", first, main)


@pytest.mark.parametrize(
    ("ref", "text"),
    [
        ("", "main"),
        ("main", "main"),
        ("v1", "first"),
        ("feature/x", "feature"),
        ("{}", "first"),
        ("v1^0", "first"),
    ],
)
def test_a_ref_is_cloned_and_its_commit_is_recorded(
    origin: Origin, git: Callable[..., str], ref: str, text: str
) -> None:
    ref = ref.format(origin.first)
    at = f"@{ref}" if ref else ""
    texts, repository = clone(f"git+{origin.url}{at}:cifar/train.py")
    assert texts == {"cifar/train.py": text}
    expected = git("-C", origin.url.removeprefix("file://"), "rev-parse", ref or "main")
    assert repository == {"url": origin.url, "ref": ref or "HEAD", "commit": expected}


def test_an_abbreviated_commit_is_found(origin: Origin) -> None:
    texts, repository = clone(f"git+{origin.url}@{origin.first[:9]}:cifar/train.py")
    assert texts == {"cifar/train.py": "first"} and repository["commit"] == origin.first


def test_a_path_of_this_machine_is_a_repository_too(
    origin: Origin, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    texts, repository = clone("git+./models@v1:cifar/train.py")
    assert texts == {"cifar/train.py": "first"} and repository["url"] == f"{tmp_path}/models"


def test_the_history_is_not_fetched(origin: Origin, git: Callable[..., str]) -> None:
    source = git_clone.parse(f"git+{origin.url}@main:cifar/train.py")
    assert source
    with git_clone.cloned(source) as (tree, _repository):
        assert git("-C", tree, "rev-list", "--count", "HEAD") == "1"


def test_submodules_come_along(git: Callable[..., str], tmp_path: Path) -> None:
    committed(git, tmp_path / "shared", "layers.py", "layers")
    committed(git, tmp_path / "models", "train.py", "")
    # Relative to the repository's own URL.
    git("-C", tmp_path / "models", "submodule", "--quiet", "add", tmp_path / "shared", "shared")
    (tmp_path / "models/.gitmodules").write_text('[submodule "shared"]\npath = shared\nurl = ../shared\n')
    git("-C", tmp_path / "models", "commit", "--quiet", "-a", "-m", "shared")
    source = git_clone.parse(f"git+{tmp_path}/models@main:train.py")
    assert source
    with git_clone.cloned(source) as (tree, _repository):
        packed = code_archive.pack(tree / "train.py", tree)
    with tarfile.open(fileobj=io.BytesIO(packed.archive)) as archive:
        assert archive.getnames() == [".gitmodules", "shared/layers.py", "train.py"]


def test_no_hook_of_the_operator_runs(origin: Origin, home: Path, tmp_path: Path) -> None:
    for folder in ("templates/hooks", "hooks"):
        (home / folder).mkdir(parents=True)
        hook = home / folder / "post-checkout"
        hook.write_text(f"#!/bin/sh\ntouch {tmp_path}/ran\n")
        hook.chmod(0o755)
    (home / ".gitconfig").write_text(
        f'[init]\ntemplateDir = {home}/templates\n[core]\nhooksPath = {home}/hooks\n[protocol "ext"]\nallow = always\n'
    )
    clone(f"git+{origin.url}@main:cifar/train.py")
    assert not (tmp_path / "ran").exists()


def test_a_submodule_names_no_program(git: Callable[..., str], home: Path, tmp_path: Path) -> None:
    commit = committed(git, tmp_path / "models", "train.py", "")
    url = f"ext::sh -c touch% {tmp_path}/ran"
    (tmp_path / "models/.gitmodules").write_text(f'[submodule "shared"]\npath = shared\nurl = "{url}"\n')
    git("-C", tmp_path / "models", "add", ".gitmodules")
    git("-C", tmp_path / "models", "update-index", "--add", "--cacheinfo", f"160000,{commit},shared")
    git("-C", tmp_path / "models", "commit", "--quiet", "-m", "shared")
    (home / ".gitconfig").write_text('[protocol "ext"]\nallow = always\n')
    with pytest.raises(UserError, match="could not be cloned: .*transport 'ext' not allowed"):
        clone(f"git+{tmp_path}/models@main:train.py")
    assert not (tmp_path / "ran").exists()


def test_variables_of_another_repository_do_not_count(
    origin: Origin, git: Callable[..., str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Those that git sets for a hook, for example."""
    committed(git, tmp_path / "mine", "a.py", "mine")
    monkeypatch.setenv("GIT_DIR", str(tmp_path / "mine/.git"))
    monkeypatch.setenv("GIT_WORK_TREE", str(tmp_path / "mine"))
    assert clone(f"git+{origin.url}@v1:cifar/train.py")[0] == {"cifar/train.py": "first"}
    monkeypatch.delenv("GIT_DIR")
    monkeypatch.delenv("GIT_WORK_TREE")
    assert sorted(os.listdir(tmp_path / "mine")) == [".git", "a.py"]
    assert git("-C", tmp_path / "mine", "remote") == ""


def test_without_git_it_is_a_sentence(origin: Origin, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    with pytest.raises(UserError, match="^There is no git on this machine, .*: install git, or .* Example:"):
        clone(f"git+{origin.url}@v1:cifar/train.py")


@pytest.mark.parametrize(
    ("place", "message"),
    [
        ("models.git@v9:cifar/train.py", "models.git at v9 could not be cloned: .*v9"),
        ("nowhere@main:train.py", "nowhere at main could not be cloned: .*(does not exist|not found|not appear)"),
        ("models.git@main:none.py", "^script is none.py, and file:///.*models.git at main has no such file.$"),
        ("models.git@main:cifar", "^script is cifar, and .* has no such file.$"),
        ("models.git@main:.git/../../../etc/passwd", None),
    ],
)
def test_an_error_of_git_is_one_line_and_leaves_nothing(
    origin: Origin, tmp_path: Path, place: str, message: str | None
) -> None:
    if message is None:
        assert git_clone.parse(f"git+file://{tmp_path}/{place}") is None
        return
    with pytest.raises(UserError, match=message) as refused:
        clone(f"git+file://{tmp_path}/{place}")
    assert "\n" not in str(refused.value)
    assert os.listdir(tmp_path / "temporary") == []


def test_what_git_says_is_shown_without_secrets(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "bin").mkdir()
    fake = tmp_path / "bin/git"
    fake.write_text(
        "#!/bin/sh\nprintf 'git@h: Permission denied\\033[2J (publickey).\\nfatal: https://me:s3cret@h/x "
        "ghp_01234\\033[1m56789abcdefghij\\n\\nand the repository exists.\\n' >&2\nexit 128\n"
    )
    fake.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}/bin")
    with pytest.raises(UserError) as refused:
        clone("git+https://me:s3cret@h/x@v1:train.py")
    assert str(refused.value) == (
        "https://h/x at v1 could not be cloned: git@h: Permission denied (publickey). "
        "fatal: https://h/x <removed> and the repository exists."
    )


@pytest.mark.parametrize("path", ["leak.py", "folder/passwd"])
def test_a_script_that_a_link_puts_outside_of_the_repository_is_refused(
    git: Callable[..., str], tmp_path: Path, path: str
) -> None:
    (tmp_path / "secret").mkdir()
    (tmp_path / "secret/passwd").write_text("s3cret")
    committed(git, tmp_path / "models", "train.py", "")
    (tmp_path / "models/leak.py").symlink_to(tmp_path / "secret/passwd")
    (tmp_path / "models/folder").symlink_to(tmp_path / "secret")
    git("-C", tmp_path / "models", "add", ".")
    git("-C", tmp_path / "models", "commit", "--quiet", "-m", "links")
    with pytest.raises(UserError, match="has no such file"):
        clone(f"git+{tmp_path}/models@main:{path}")
    # Next to a script, links are sent as links.
    source = git_clone.parse(f"git+{tmp_path}/models@main:train.py")
    assert source
    with git_clone.cloned(source) as (tree, _repository):
        assert b"s3cret" not in code_archive.pack(tree / "train.py", tree).archive


def command_lines() -> bytes:
    """Those of all processes."""
    lines = []
    for place in Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(OSError):
            lines.append(place.read_bytes())
    return b"".join(lines)


@dataclass
class GitServer:
    """Repositories below a folder, for clients that send a user and a password."""

    address: str
    logins: set[str]
    """that came along with requests"""
    command_lines: list[bytes]
    """of all processes, at each request"""


@pytest.fixture
def serve(tmp_path: Path) -> Iterator[Callable[[str, str], GitServer]]:
    servers: list[ThreadingHTTPServer] = []

    def serve(folder: str, login: str) -> GitServer:
        expected = "Basic " + base64.b64encode(login.encode()).decode()

        class Handler(SimpleHTTPRequestHandler):
            def do_GET(self) -> None:
                seen.command_lines.append(command_lines())
                came = self.headers["Authorization"]
                if came == expected:
                    super().do_GET()
                    return
                self.send_response(401)
                self.send_header("WWW-Authenticate", 'Basic realm="models"')
                self.send_header("Content-Length", "0")
                self.end_headers()

            def parse_request(self) -> bool:
                parsed = super().parse_request()
                if parsed and self.headers["Authorization"]:
                    seen.logins.add(base64.b64decode(self.headers["Authorization"].split()[1]).decode())
                return parsed

            def log_message(self, *_words: Any) -> None:
                pass

        (tmp_path / folder).mkdir(exist_ok=True)
        server = ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(Handler, directory=str(tmp_path / folder)))
        seen = GitServer(f"127.0.0.1:{server.server_port}", set(), [])
        threading.Thread(target=server.serve_forever).start()
        servers.append(server)
        return seen

    yield serve
    for server in servers:
        server.shutdown()
        server.server_close()


def served(git: Callable[..., str], folder: Path, into: Path) -> None:
    """A repository as a plain web server can give it away."""
    git("clone", "--quiet", "--bare", folder, into)
    git("-C", into, "update-server-info")


def test_nothing_is_asked_at_a_terminal(serve: Callable[[str, str], GitServer]) -> None:
    server, started = serve("served", "me:S3cr3t"), time.monotonic()
    with pytest.raises(UserError, match="could not read Username .*terminal prompts disabled"):
        clone(f"git+http://{server.address}/models.git@main:train.py")
    assert time.monotonic() - started < 300


@pytest.mark.parametrize(
    ("login", "in_url"),
    [("me:S3cr3t@T0ken", "me:S3cr3t@T0ken"), ("me:S3cr3t/T0ken", "me:S3cr3t%2FT0ken"), ("S3cr3t:", "S3cr3t")],
)
def test_the_password_of_a_url_is_in_no_file_and_no_command_line(
    tmp_path: Path,
    git: Callable[..., str],
    serve: Callable[[str, str], GitServer],
    home: Path,
    login: str,
    in_url: str,
) -> None:
    # Who configures such a helper, and for this server too, does not mean the password of a URL.
    server = serve("served", login)
    (home / ".gitconfig").write_text(
        f'[credential]\nhelper = store\n[credential "http://{server.address}"]\nhelper = store\n'
    )
    committed(git, tmp_path / "shared", "layers.py", "")
    served(git, tmp_path / "shared", tmp_path / "served/shared.git")
    committed(git, tmp_path / "models", "train.py", "")
    (tmp_path / "models/.gitmodules").write_text('[submodule "shared"]\npath = shared\nurl = ../shared.git\n')
    git("-C", tmp_path / "models", "add", ".gitmodules")
    commit = git("-C", tmp_path / "shared", "rev-parse", "HEAD")
    git("-C", tmp_path / "models", "update-index", "--add", "--cacheinfo", f"160000,{commit},shared")
    git("-C", tmp_path / "models", "commit", "--quiet", "-m", "shared")
    served(git, tmp_path / "models", tmp_path / "served/models.git")

    source = git_clone.parse(f"git+http://{in_url}@{server.address}/models.git@main:train.py")
    assert source
    with git_clone.cloned(source) as (tree, repository):
        kept = [path for place in (tree, home) for path in place.rglob("*") if path.is_file()]
        assert len(kept) > 10 and [path for path in kept if b"S3cr3t" in path.read_bytes()] == []
        assert (tree / "shared/layers.py").exists()
    assert repository["url"] == f"http://{server.address}/models.git"
    assert server.logins == {login} and server.command_lines
    assert b"S3cr3t" not in b"".join(server.command_lines)


def test_a_submodule_elsewhere_does_not_get_the_password(
    tmp_path: Path,
    git: Callable[..., str],
    serve: Callable[[str, str], GitServer],
) -> None:
    own, other = serve("served", "me:S3cr3t"), serve("other", "me:S3cr3t")
    committed(git, tmp_path / "shared", "layers.py", "")
    served(git, tmp_path / "shared", tmp_path / "other/shared.git")
    committed(git, tmp_path / "models", "train.py", "")
    url = f"http://{other.address}/shared.git"
    (tmp_path / "models/.gitmodules").write_text(f'[submodule "shared"]\npath = shared\nurl = {url}\n')
    commit = git("-C", tmp_path / "shared", "rev-parse", "HEAD")
    git("-C", tmp_path / "models", "add", ".gitmodules")
    git("-C", tmp_path / "models", "update-index", "--add", "--cacheinfo", f"160000,{commit},shared")
    git("-C", tmp_path / "models", "commit", "--quiet", "-m", "shared")
    served(git, tmp_path / "models", tmp_path / "served/models.git")

    with pytest.raises(UserError, match=r"models\.git at main could not be cloned") as refused:
        clone(f"git+http://me:S3cr3t@{own.address}/models.git@main:train.py")
    assert "S3cr3t" not in str(refused.value)
    assert own.logins == {"me:S3cr3t"} and other.command_lines and other.logins == set()


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
    url, environment = git_clone.split_login(f"HTTPS://{login}@h:8443/x.git")
    assert url == "HTTPS://h:8443/x.git"
    assert (environment["DEEPLEARNING_GIT_USER"], environment["DEEPLEARNING_GIT_PASSWORD"]) == (user, password)


@pytest.mark.parametrize(
    "url", ["https://h/x.git", "https://[2001:db8::1]:8443/x@y", "git@h:me/x.git", "ssh://git@h:22/x", "/efs/models"]
)
def test_a_url_without_a_password_stays_as_it_is(url: str) -> None:
    assert git_clone.split_login(url) == (url, {})


@pytest.mark.parametrize("url", ["https://me:to/ken@h/x", "ssh://me:token@h/x", "http://me:t@h:port/x"])
def test_a_password_that_git_cannot_be_given_is_refused_and_not_shown(url: str) -> None:
    with pytest.raises(UserError, match="write special characters as %XX") as refused:
        git_clone.split_login(url)
    assert "token" not in str(refused.value) and "to/ken" not in str(refused.value)


def test_the_default_branch_comes_from_a_server_that_cannot_leave_out_the_history(
    git: Callable[..., str], serve: Callable[[str, str], GitServer], tmp_path: Path
) -> None:
    server = serve("served", "me:S3cr3t")
    commit = committed(git, tmp_path / "models", "train.py", "main")
    served(git, tmp_path / "models", tmp_path / "served/models.git")
    texts, repository = clone(f"git+http://me:S3cr3t@{server.address}/models.git:train.py")
    assert texts == {"train.py": "main"} and repository["commit"] == commit
