"""The archive of logs: what collecting it holds in memory, and how much it takes from a node."""

from __future__ import annotations

import base64
import gzip
import tarfile
import tracemalloc
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.deeplearning.aws.plugins.plugin_utils.members.hosts import SshAccess
from ansible_collections.deeplearning.aws.plugins.plugin_utils.resources.membership import ClusterNode
from ansible_collections.deeplearning.aws.plugins.plugin_utils.runs import node_logs
from ansible_collections.deeplearning.aws.plugins.plugin_utils.runs.node_program import Way
from ansible_collections.deeplearning.aws.plugins.plugin_utils.views.logs import LogCollector, new_archive

FILES = 16
FILE_BYTES = 64 << 10
PEAK = 3 << 19
"""1.5 MiB: a few copies of one file of each node that is asked at the same time. All texts together have 3 MiB."""


@pytest.fixture
def sent(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the file that each node prints as its answer."""
    sent = tmp_path / "sent"
    monkeypatch.setattr(node_logs, "collect_command", lambda *_words: f"cat {sent}")
    monkeypatch.setattr(Way, "of_config", classmethod(lambda _cls, _config, host: Way(host)))
    return sent


def nodes_and_collector(count: int) -> tuple[list[ClusterNode], LogCollector]:
    nodes = [ClusterNode({"id": f"i-{rank}"}, "worker", rank) for rank in range(1, count + 1)]  # type: ignore[typeddict-item]
    unused: Any = None
    owned: Any = type("Owned", (), {"cluster": "red"})
    collector = LogCollector(unused, owned, SshAccess("public", "x", frozenset(node.id for node in nodes)), "/efs")
    collector.display = lambda _line: None
    return nodes, collector


def test_the_logs_of_many_nodes_are_written_one_after_another(tmp_path: Path, sent: Path) -> None:
    text = ("epoch 1 step 100 " + "." * 46 + "\n") * (FILE_BYTES // 64)
    packed = base64.b64encode(gzip.compress(text.encode())).decode()
    names = [f"runs/lenet-1/logs/deeplearning-worker{number}.worker0.log" for number in range(FILES)]
    sent.write_text("".join(f"{name} {packed}\n" for name in names))
    nodes, collector = nodes_and_collector(3)
    path = tmp_path / "logs.tar.gz"
    with new_archive(path) as archive:
        tracemalloc.start()
        try:
            answers = [answer for _node, answer in collector._ask(archive, nodes)]
            peak = tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()
    assert answers == [(FILES, "")] * 3
    with tarfile.open(path) as file:
        assert sum(member.size for member in file) == 3 * FILES * len(text)
    assert peak < PEAK


@pytest.mark.parametrize(
    ("more", "problem"), [(0, "answered with nothing that is expected."), (1, "sends far more than is expected")]
)
def test_a_node_sends_at_most_32_mib(tmp_path: Path, sent: Path, more: int, problem: str) -> None:
    """As docs/security.md says."""
    sent.write_bytes((b"x" * 1023 + b"\n") * (32 << 10) + b"x" * more)
    nodes, collector = nodes_and_collector(1)
    with new_archive(tmp_path / "logs.tar.gz") as archive:
        ((_node, (count, sentence)),) = collector._ask(archive, nodes)
    assert count == 0 and sentence.startswith(f"deeplearning-master {problem}")
