"""It can be imported by whoever logs in, says what it is, and has left the system's own Python alone."""

from __future__ import annotations

import json

from seen import says, ssh

ENVIRONMENT = "/opt/deeplearning/env/mxnet"

assert says(f"{ENVIRONMENT}/bin/python -c 'import mxnet; print(mxnet.nd.ones(3).sum().asscalar())'") == "3.0"
assert "--logdir" in says(f"{ENVIRONMENT}/bin/tensorboard --helpfull")
marker = json.loads(says(f"cat {ENVIRONMENT}/.deeplearning.json"))
assert (marker["schema"], marker["framework"], marker["versions"]["mxnet"]) == (1, "mxnet", "1.9.1")
assert ssh("/usr/bin/python3 -c 'import mxnet'").returncode == 1
assert ssh(f"touch {ENVIRONMENT}/lib/mine").returncode == 1
