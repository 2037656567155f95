"""Jupyter as docs/notebooks.md has it: an environment of one's own on the master, reached through a tunnel."""

from __future__ import annotations

import json
import shlex
import signal
import subprocess
import urllib.error
import urllib.request
from pathlib import Path

import pytest

from localcloud.testing.booted import wait_for
from tests.integration.machines import Cluster
from tests.published.kit import FOLDER, MASTER, create_environment

pytestmark = pytest.mark.long
PORT = 8888
NOTEBOOK = {
    "cells": [
        {
            "cell_type": "code",
            "execution_count": None,
            "id": "one",
            "metadata": {},
            "outputs": [],
            "source": "import torch; print('torch', torch.ones(2).sum().item())",
        }
    ],
    "metadata": {"kernelspec": {"name": "python3", "display_name": "Python 3", "language": "python"}},
    "nbformat": 4,
    "nbformat_minor": 5,
}


def answer(host: str, path: str, data: bytes | None = None) -> int:
    """Return the status of a request as a browser sends it, which takes every name below localhost for this machine."""
    headers = {"Host": f"{host}:{PORT}", "Authorization": "token secret"}
    request = urllib.request.Request(f"http://127.0.0.1:{PORT}{path}", data=data, headers=headers)
    try:
        with urllib.request.urlopen(request, timeout=10) as response:
            return int(response.status)
    except urllib.error.HTTPError as error:
        return error.code
    except OSError:
        return 0


def test_a_notebook_runs_on_the_master_and_is_reached_through_a_tunnel(
    training_cluster: Cluster, tmp_path_factory: pytest.TempPathFactory
) -> None:
    cluster = training_cluster
    environment = create_environment(cluster, "jupyter", tmp_path_factory.mktemp("wheels"))
    jupyter = f"{Path(environment.python).parent}/jupyter"
    written = cluster.ssh(MASTER, f"cat > {FOLDER}/one.ipynb", input=json.dumps(NOTEBOOK))
    assert written.returncode == 0, written.stderr
    cluster.says(MASTER, f"{jupyter} execute --output=done.ipynb {FOLDER}/one.ipynb")
    assert "torch 2.0" in cluster.says(MASTER, f"cat {FOLDER}/done.ipynb")

    name = f"{cluster.name}.localhost"
    lab = f"JUPYTER_TOKEN=secret {jupyter} lab --no-browser --ip 127.0.0.1 --ServerApp.local_hostnames={name}"
    # Without a terminal here, -t takes none there.
    words = [*cluster.ssh_words(MASTER, "-a", "-tt", "-L", f"{PORT}:127.0.0.1:{PORT}"), lab]
    with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL) as tunnel:
        try:
            wait_for(lambda: answer(name, "/api/status") == 200, 120, f"{shlex.join(words)} answers")
            assert answer(name, "/api/kernels", data=b"{}") == 201
            assert answer("elsewhere.example", "/api/status") == 403
        finally:
            tunnel.send_signal(signal.SIGTERM)
    wait_for(lambda: cluster.ssh(MASTER, "pgrep -f '[j]upyter-lab'").returncode == 1, 120, "Jupyter has ended")
