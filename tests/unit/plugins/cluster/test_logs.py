"""The archive of logs: what collecting it holds in memory."""

from __future__ import annotations

import base64
import gzip
import tarfile
import tracemalloc
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.deeplearning.aws.plugins.plugin_utils.cluster.hosts import SshAccess
from ansible_collections.deeplearning.aws.plugins.plugin_utils.cluster.logs import LogCollector, new_archive
from ansible_collections.deeplearning.aws.plugins.plugin_utils.cluster.membership import ClusterNode
from ansible_collections.deeplearning.aws.plugins.plugin_utils.runs import node_logs
from ansible_collections.deeplearning.aws.plugins.plugin_utils.runs.node_program import Way

FILES = 16
FILE_BYTES = 64 << 10
PEAK = 3 << 19
"""1.5 MiB: a few copies of one file of each node that is asked at the same time. All texts together have 3 MiB."""


def test_the_logs_of_many_nodes_are_written_one_after_another(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text = ("epoch 1 step 100 " + "." * 46 + "\n") * (FILE_BYTES // 64)
    packed = base64.b64encode(gzip.compress(text.encode())).decode()
    names = [f"runs/lenet-1/logs/deeplearning-worker{number}.worker0.log" for number in range(FILES)]
    sent = tmp_path / "sent"
    sent.write_text("".join(f"{name} {packed}\n" for name in names))
    monkeypatch.setattr(node_logs, "collect_command", lambda *_words: f"cat {sent}")
    monkeypatch.setattr(Way, "of_config", classmethod(lambda _cls, _config, host: Way(host)))
    nodes = [ClusterNode({"id": f"i-{rank}"}, "worker", rank) for rank in (1, 2, 3)]  # type: ignore[typeddict-item]
    unused: Any = None
    owned: Any = type("Owned", (), {"cluster": "red"})
    collector = LogCollector(unused, owned, SshAccess("public", "x", frozenset(node.id for node in nodes)), "/efs")
    collector.display = lambda _line: None
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
