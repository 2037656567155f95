# Copyright: (c) 2026, the deeplearning.aws contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)

"""Wheels of Horovod from a bucket to a node, and back. Its documentation is in plugins/modules/wheels.py."""

from __future__ import annotations

import hashlib
import tempfile
from pathlib import Path
from typing import Any

from ansible.errors import AnsibleConnectionFailure, AnsibleError
from ansible.plugins.action import ActionBase
from ansible_collections.deeplearning.aws.plugins.module_utils._aws import ARGUMENTS, Aws, AwsProblem
from ansible_collections.deeplearning.aws.plugins.module_utils._names import Names
from ansible_collections.deeplearning.aws.plugins.plugin_utils import _looking, _wheels
from ansible_collections.deeplearning.aws.plugins.plugin_utils._stage import Bucket
from ansible_collections.deeplearning.aws.plugins.plugin_utils._stage_sets import Unstageable

SPEC: dict[str, dict[str, Any]] = {
    **ARGUMENTS,
    "cluster": {"type": "str", "required": True},
    "bucket": {"type": "str", "default": ""},
    "folder": {"type": "str", "required": True},
    "framework": {"type": "str", "required": True, "choices": list(_wheels.KITS)},
    "state": {"type": "str", "required": True, "choices": ["brought", "kept"]},
}


class ActionModule(ActionBase):  # type: ignore[misc]
    _supports_check_mode = True

    def run(self, tmp: str | None = None, task_vars: dict[str, Any] | None = None) -> dict[str, Any]:
        super().run(tmp, task_vars)
        given = self.validate_argument_spec(argument_spec=SPEC)[1]
        act = self._bring if given["state"] == "brought" else self._keep
        try:
            return {"changed": bool(done := act(given, given["folder"].rstrip("/"))), "wheels": sorted(done)}
        except AnsibleConnectionFailure:
            raise
        except (AwsProblem, Unstageable, AnsibleError, OSError) as trouble:
            # It costs a build at most.
            said = f"No wheel of Horovod could be {given['state']}: {trouble}"
            return {"changed": False, "wheels": [], "warnings": [said]}

    def _bring(self, given: dict[str, Any], folder: str) -> set[str]:
        lines = self._look(given, folder)
        if _wheels.READY in lines:
            return set()
        bucket = bucket_of(_looking.aws_of(given), given)
        missing = _wheels.stored(bucket, given["framework"]) - _wheels.seen(folder, lines)
        for wheel in missing if not self._task.check_mode else ():
            content = bucket.read(wheel)
            ran = self._low_level_execute_command(_wheels.put(folder, wheel), in_data=content)
            if ran["rc"]:
                raise Unstageable(f"{folder}/{wheel} cannot be written: {ran['stderr'].strip()}")
        return missing

    def _keep(self, given: dict[str, Any], folder: str) -> set[str]:
        there = _wheels.seen(folder, self._look(given, folder))
        if not there:
            return set()
        bucket = bucket_of(_looking.aws_of(given), given)
        new = there - _wheels.stored(bucket, given["framework"])
        for wheel in new if not self._task.check_mode else ():
            with tempfile.TemporaryDirectory() as scratch:
                file = Path(scratch, Path(wheel).name)
                self._connection.fetch_file(f"{folder}/{wheel}", str(file))
                bucket.send(file, wheel, hashlib.sha256(file.read_bytes()).hexdigest(), lambda _: None)
        return new

    def _look(self, given: dict[str, Any], folder: str) -> list[str]:
        ran = self._low_level_execute_command(_wheels.look(folder, given["framework"]))
        return [line.strip() for line in ran["stdout"].splitlines()]


def bucket_of(aws: Aws, given: dict[str, Any]) -> Bucket:
    """The one for all clusters, or this cluster's own."""
    if given["bucket"]:
        name, _unused, prefix = given["bucket"].partition("/")
        return Bucket(aws, name, f"{prefix}/wheels".lstrip("/"))
    account = str(aws.call("sts", "get_caller_identity")["Account"])
    return Bucket(aws, Names(given["cluster"], account, given["region"]).bucket, "wheels", account)
