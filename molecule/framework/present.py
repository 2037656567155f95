"""Every user can import it, it records what it is, and the system's own Python has nothing of it."""

from __future__ import annotations

import json

from remote import output, run

ENVIRONMENT = "/opt/deeplearning/env/mxnet"

assert output(f"{ENVIRONMENT}/bin/python -c 'import mxnet; print(mxnet.nd.ones(3).sum().asscalar())'") == "3.0"
assert "--logdir" in output(f"{ENVIRONMENT}/bin/tensorboard --helpfull")
marker = json.loads(output(f"cat {ENVIRONMENT}/.deeplearning.json"))
assert (marker["schema"], marker["framework"], marker["versions"]["mxnet"]) == (1, "mxnet", "1.9.1")
assert run("/usr/bin/python3 -c 'import mxnet'").returncode == 1
assert run(f"touch {ENVIRONMENT}/lib/mine").returncode == 1
