"""The program runs for anybody, its timers run, and python is the default framework's."""

from __future__ import annotations

import json

from seen import says, ssh

says("which git wget rsync tar mpirun && /usr/bin/python3 -c 'import boto3'")
record = json.loads(says("cat /etc/deeplearning/cluster.json"))
assert (record["schema"], record["cluster"], record["role"], record["gpus"]) == (1, "molecule", "master", 0)
assert says("stat -c %U:%G:%a /etc/deeplearning/cluster.json") == "root:root:644"

assert "members" in says("deeplearning --help")
# Neither a variable nor a module of a user's own has a say in what root runs.
says("mkdir -p bad/deeplearning && touch bad/deeplearning/__init__.py")
assert "members" in says("cd bad && PYTHONPATH=. deeplearning --help")
timers = " ".join(f"deeplearning-{name}.timer" for name in ("apply", "publish", "recover", "report"))
assert says(f"systemctl is-active {timers}").split() == ["active"] * 4
assert says(f"systemctl is-enabled {timers}").split() == ["enabled"] * 4

# What is installed later, and by others.
refused = ssh("python --version")
assert refused.returncode == 2 and "pytorch" in refused.stderr
says("sudo python3 -m venv --without-pip /opt/deeplearning/env/pytorch")
says("echo '{}' | sudo tee /opt/deeplearning/env/pytorch/.deeplearning.json")
for shell in ("{}", "bash -lc '{}'"):
    assert says(shell.format('python -c "import sys; print(sys.prefix)"')) == "/opt/deeplearning/env/pytorch"
assert ssh("tensorboard").returncode not in (0, 124), "it is not in that environment, and does not look for itself"
