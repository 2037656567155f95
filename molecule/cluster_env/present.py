"""The program runs for every user, its timers run, and python is the default framework's."""

from __future__ import annotations

import json

from remote import output, run

output("which git wget rsync tar mpirun && /usr/bin/python3 -c 'import boto3'")
record = json.loads(output("cat /etc/deeplearning/cluster.json"))
assert (record["schema"], record["cluster"], record["role"], record["gpus"]) == (1, "molecule", "master", 0)
assert output("stat -c %U:%G:%a /etc/deeplearning/cluster.json") == "root:root:644"

assert "members" in output("deeplearning --help")
# Neither a variable nor a module of a user changes what root runs.
output("mkdir -p bad/deeplearning && touch bad/deeplearning/__init__.py")
assert "members" in output("cd bad && PYTHONPATH=. deeplearning --help")
timers = " ".join(f"deeplearning-{name}.timer" for name in ("apply", "publish", "recover", "report"))
assert output(f"systemctl is-active {timers}").split() == ["active"] * 4
assert output(f"systemctl is-enabled {timers}").split() == ["enabled"] * 4

# The framework is installed later, by another role.
refused = run("python --version")
assert refused.returncode == 2 and "pytorch" in refused.stderr
output("sudo python3 -m venv --without-pip /opt/deeplearning/env/pytorch")
output("echo '{}' | sudo tee /opt/deeplearning/env/pytorch/.deeplearning.json")
for shell in ("{}", "bash -lc '{}'"):
    assert output(shell.format('python -c "import sys; print(sys.prefix)"')) == "/opt/deeplearning/env/pytorch"
PREFIX = 'python3 -c "import sys; print(sys.prefix)"'
assert output(f"bash -lc '{PREFIX}'") == "/opt/deeplearning/env/pytorch"
assert output(PREFIX) == output(f"sudo -i {PREFIX}") == "/usr"
assert run("tensorboard").returncode not in (0, 124), "the environment has none, and the command does not find itself"
