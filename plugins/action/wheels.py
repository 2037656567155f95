# Copyright: (c) 2026, the deeplearning.aws contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)

"""Wheels of Horovod from a bucket to a node, and back. Its documentation is in plugins/modules/wheels.py."""

from __future__ import annotations

import hashlib
import shlex
import tempfile
from pathlib import Path
from typing import Any

from ansible.errors import AnsibleConnectionFailure, AnsibleError
from ansible.plugins.action import ActionBase
from ansible_collections.deeplearning.aws.plugins.module_utils._aws import ARGUMENTS, Aws, AwsProblem
from ansible_collections.deeplearning.aws.plugins.module_utils._names import Names
from ansible_collections.deeplearning.aws.plugins.plugin_utils import _looking, _program, _wheels
from ansible_collections.deeplearning.aws.plugins.plugin_utils._program import Trouble
from ansible_collections.deeplearning.aws.plugins.plugin_utils._stage import Bucket
from ansible_collections.deeplearning.aws.plugins.plugin_utils._stage_sets import Unstageable
from ansible_collections.deeplearning.aws.plugins.plugin_utils._untrusted import one_line

SPEC: dict[str, dict[str, Any]] = {
    **ARGUMENTS,
    "cluster": {"type": "str", "required": True},
    "bucket": {"type": "str", "default": ""},
    "folder": {"type": "str", "required": True},
    "framework": {"type": "str", "required": True, "choices": list(_wheels.KITS)},
    "built": {"type": "dict", "default": {}},
    "state": {"type": "str", "required": True, "choices": ["brought", "kept"]},
}


class ActionModule(ActionBase):  # type: ignore[misc]
    _supports_check_mode = True

    def run(self, tmp: str | None = None, task_vars: dict[str, Any] | None = None) -> dict[str, Any]:
        super().run(tmp, task_vars)
        self._host = str((task_vars or {})["inventory_hostname"])
        given = self.validate_argument_spec(argument_spec=SPEC)[1]
        act = self._bring if given["state"] == "brought" else self._keep
        try:
            return act(given, given["folder"].rstrip("/"))
        except AnsibleConnectionFailure:
            raise
        except (AwsProblem, Unstageable, AnsibleError, OSError, Trouble, ValueError) as trouble:
            # It costs a build at most.
            said = one_line(f"No wheel of Horovod could be {given['state']}: {trouble}")
            return {"changed": False, "wheels": {}, "warnings": [said]}

    def _bring(self, given: dict[str, Any], folder: str) -> dict[str, Any]:
        bucket, framework = bucket_of(_looking.aws_of(given), given), given["framework"]
        names = _wheels.usable(framework, _wheels.stored_names(bucket, framework), self._machine())
        checksums = _wheels.stored_checksums(bucket, names)
        missing = checksums.keys() - self._intact(folder, checksums) if checksums else set()
        warnings = []
        for wheel in sorted(missing) if not self._task.check_mode else ():
            try:
                self._fetch(bucket, folder, wheel, checksums[wheel])
            except (AwsProblem, Unstageable) as problem:
                missing.remove(wheel)
                del checksums[wheel]
                warnings.append(one_line(f"A wheel of Horovod is not used: {problem}"))
        result = {"changed": bool(missing), "wheels": checksums}
        return {**result, "warnings": warnings} if warnings else result

    def _machine(self) -> str:
        """Only compared with the names of wheels, as a node may print anything."""
        return str(_program.execute(self, _wheels.MACHINE)["stdout"]).strip()

    def _fetch(self, bucket: Bucket, folder: str, wheel: str, sha256: str) -> None:
        content = bucket.read(wheel)
        if hashlib.sha256(content).hexdigest() != sha256:
            raise Unstageable(
                f"{bucket.url}/{wheel} is not the wheel that was kept there: its SHA-256 is not the one in its "
                f"metadata. Remove it, and the next cluster that builds it keeps its own."
            )
        ran = _program.execute(self, _wheels.put(folder, wheel), become=True, stdin=content)
        if ran["rc"]:
            raise Unstageable(f"{folder}/{wheel} cannot be written: {ran['stderr'].strip()}")

    def _keep(self, given: dict[str, Any], folder: str) -> dict[str, Any]:
        built = _wheels.built_wheels(given["framework"], given["built"])
        if not built:
            return {"changed": False, "wheels": {}}
        bucket = bucket_of(_looking.aws_of(given), given)
        # None is ever replaced: a cluster could replace what others install.
        new = {name: built[name] for name in built.keys() - _wheels.stored_names(bucket, given["framework"])}
        for name, sha256 in new.items() if not self._task.check_mode else ():
            self._send(bucket, folder, name, sha256)
        return {"changed": bool(new), "wheels": new}

    def _send(self, bucket: Bucket, folder: str, name: str, sha256: str) -> None:
        command = shlex.join(["cat", f"{folder}/{name}"])
        content = _program.read_bytes(self._connection, command, self._host, _wheels.LIMIT)
        if hashlib.sha256(content).hexdigest() != sha256:
            raise Unstageable(f"{folder}/{name} is no longer the wheel that was built: its SHA-256 is another.")
        with tempfile.NamedTemporaryFile() as file:
            file.write(content)
            file.flush()
            bucket.send(Path(file.name), name, sha256, lambda _: None)

    def _intact(self, folder: str, checksums: dict[str, str]) -> set[str]:
        ran = _program.execute(self, _wheels.check(folder, checksums), become=True)
        return _wheels.intact(folder, checksums, ran["stdout"].splitlines())


def bucket_of(aws: Aws, given: dict[str, Any]) -> Bucket:
    """The one for all clusters, or this cluster's own."""
    if given["bucket"]:
        name, _unused, prefix = given["bucket"].partition("/")
        return Bucket(aws, name, f"{prefix}/wheels".lstrip("/"))
    account = str(aws.call("sts", "get_caller_identity")["Account"])
    return Bucket(aws, Names(given["cluster"], account, given["region"]).bucket, "wheels", account)
