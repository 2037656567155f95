"""A script in a repository: its parts, what may not be one, and which secrets of it are never shown."""

from __future__ import annotations

import pytest
from ansible_collections.deeplearning.aws.plugins.plugin_utils.runs import git_clone
from ansible_collections.deeplearning.aws.plugins.plugin_utils.runs.git_clone import GitSource


@pytest.mark.parametrize(
    ("script", "expected"),
    [
        ("git+https://h/r.git@v1:a/b.py", GitSource("https://h/r.git", "v1", "a/b.py")),
        ("git+https://h/r.git:b.py", GitSource("https://h/r.git", "HEAD", "b.py")),
        ("git+https://me:a@b@h:8443/r@v1:b.py", GitSource("https://me:a@b@h:8443/r", "v1", "b.py")),
        ("git+git@h:r.git@v1:b.py", GitSource("git@h:r.git", "v1", "b.py")),
        ("git+/home/me/models@v1:b.py", GitSource("/home/me/models", "v1", "b.py")),
        ("git+ssh://git@h:22/x@0123abc:t.py", GitSource("ssh://git@h:22/x", "0123abc", "t.py")),
        ("git+https://[2001:db8::1]/r@v1:b.py", GitSource("https://[2001:db8::1]/r", "v1", "b.py")),
        # Options of git, other refs to write, and programs that git starts.
        ("git+--upload-pack=/bin/sh@v1:b.py", None),
        ("git+-c/r@v1:b.py", None),
        ("git+https://h/r.git@--upload-pack=x:b.py", None),
        ("git+https://h/r.git@+main:b.py", None),
        ("git+https://h/r:s@main:refs/heads/x:b.py", None),
        ("git+ext::/bin/sh@v1:b.py", None),
        ("git+fd::17/r@v1:b.py", None),
        ("git+https://h/r.git@v1:a/../../b.py", None),
        ("git+https://h/r.git@v1:/b.py", None),
        ("git+https://h/r.git@:b.py", None),
        ("git+https://h@v1:b.py", None),
        ("git+https://h/r.git@v1", None),
        ("https://h/r.git@v1:b.py", None),
    ],
)
def test_sources_in_git(script: str, expected: GitSource | None) -> None:
    assert git_clone.parse(script) == expected


@pytest.mark.parametrize("login", ["me:token", "token", "me:to@ken", "me:to:k@en@"])
def test_secrets_in_a_url_are_hidden(login: str) -> None:
    assert git_clone.without_secret(f"fatal: https://{login}@h/x failed") == "fatal: https://h/x failed"


@pytest.mark.parametrize("url", ["https://me:12/s3cret@h", "https://me:12/s3c@ret@h/x", "HTTPS://me:a@b/s3cret@h/x"])
def test_a_password_that_looks_like_a_path_is_not_shown(url: str) -> None:
    shown = git_clone.without_secret(f"fatal: unable to access '{url}/': Could not resolve host: me")
    assert shown.lower() == "fatal: unable to access 'https://<hidden>': could not resolve host: me"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("git+https://me:secret@h/r.git", "git+https://h/r.git"),
        ("https://me:se@cret@h/r", "https://h/r"),
        ("see HTTPS://me:se/cret@h/r and http://h/r@v1 x", "see HTTPS://<hidden> and http://<hidden> x"),
        ("ssh://git@h/r@v1", "ssh://h/r@v1"),
        ("https://h/r", "https://h/r"),
    ],
)
def test_secrets_of_urls_are_not_shown(text: str, expected: str) -> None:
    assert git_clone.without_secret(text) == expected
