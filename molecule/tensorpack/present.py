"""TensorPack and Horovod work together on two ranks: present.py [same-wheel | SHA256 …]

With same-wheel, Horovod was not built again since the last call. With checksums, it comes from one of these wheels.
"""

from __future__ import annotations

import json
import sys

from remote import FOLDER, output, run

ENVIRONMENT = "/opt/deeplearning/env/tensorpack"
SUM = """
import horovod.tensorflow as hvd, tensorflow as tf, tensorpack
hvd.init()
print(int(hvd.allreduce(tf.constant(hvd.rank() + 1.0), op=hvd.Sum)), flush=True)
"""

marker = json.loads(output(f"cat {ENVIRONMENT}/.deeplearning.json"))
assert (marker["schema"], marker["framework"]) == (1, "tensorpack")
assert [marker["versions"][name] for name in ("tensorpack", "horovod")] == ["0.11", "0.28.1"]
ranks = f"mpirun -np 2 --oversubscribe {ENVIRONMENT}/bin/python -c '{SUM}'"
assert output(f"{ranks} 2>/dev/null").split() == ["3", "3"]
assert run("/usr/bin/python3 -c 'import tensorpack'").returncode == 1

# The time of a wheel's file is the time of its build.
wheels = output("stat -c '%n %Y' /srv/wheels/*/*.whl")
built = FOLDER / "wheels"
if sys.argv[1:] == ["same-wheel"]:
    assert wheels == built.read_text()
else:
    assert len(wheels.splitlines()) == 1
    digest = output("sha256sum /srv/wheels/*/*.whl").split()[0]
    assert not sys.argv[1:] or digest in sys.argv[1:], "the role built a wheel, though the image's was there"
    built.write_text(wheels)
