# Copyright: (c) 2026, the deeplearning.aws contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)

"""Copy wheels between a bucket and a node. Its documentation is in plugins/modules/bucket_sync.py."""

from __future__ import annotations

import hashlib
import shlex
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ansible.errors import AnsibleConnectionFailure, AnsibleError
from ansible_collections.deeplearning.aws.plugins.module_utils.aws.client import Aws
from ansible_collections.deeplearning.aws.plugins.module_utils.contract.errors import UserError
from ansible_collections.deeplearning.aws.plugins.module_utils.contract.names import Names
from ansible_collections.deeplearning.aws.plugins.plugin_utils.action import Action
from ansible_collections.deeplearning.aws.plugins.plugin_utils.runs import node_program
from ansible_collections.deeplearning.aws.plugins.plugin_utils.staging import bucket, wheels
from ansible_collections.deeplearning.aws.plugins.plugin_utils.staging.bucket import Bucket
from ansible_collections.deeplearning.aws.plugins.plugin_utils.untrusted import one_line


class ActionModule(Action):
    def handle(self, options: dict[str, Any], task_vars: Mapping[str, Any]) -> dict[str, Any]:
        self._host = str(task_vars["inventory_hostname"])
        self._folder = options["folder"].rstrip("/")
        try:
            return self._pull(options) if options["direction"] == "pull" else self._push(options)
        except AnsibleConnectionFailure:
            raise
        except (UserError, AnsibleError, OSError) as error:
            # Without wheels from the bucket the nodes only take longer, as they build their own.
            text = one_line(f"Could not {options['direction']} wheels of Horovod: {error}")
            return {"changed": False, "wheels": {}, "warnings": [text]}

    def _pull(self, options: Mapping[str, Any]) -> dict[str, Any]:
        source, framework = _bucket(options), options["framework"]
        names = wheels.usable(framework, wheels.stored_names(source, framework), self._architecture())
        checksums = wheels.stored_checksums(source, names)
        missing = checksums.keys() - self._intact(checksums) if checksums else set()
        warnings = []
        for wheel in sorted(missing) if not self.check_mode else ():
            try:
                self._download(source, wheel, checksums[wheel])
            except UserError as error:
                missing.remove(wheel)
                del checksums[wheel]
                warnings.append(one_line(f"A wheel of Horovod is not used: {error}"))
        result = {"changed": bool(missing), "wheels": checksums}
        return {**result, "warnings": warnings} if warnings else result

    def _architecture(self) -> str:
        """Return what the node prints. It is only compared with the names of wheels, as a node may print anything."""
        return str(node_program.execute(self, wheels.ARCHITECTURE)["stdout"]).strip()

    def _intact(self, checksums: Mapping[str, str]) -> set[str]:
        ran = node_program.execute(self, wheels.check_command(self._folder, checksums), become=True)
        return wheels.intact(self._folder, checksums, ran["stdout"].splitlines())

    def _download(self, source: Bucket, wheel: str, sha256: str) -> None:
        content = source.read(wheel)
        if hashlib.sha256(content).hexdigest() != sha256:
            raise UserError(
                f"{source.url}/{wheel} is not the wheel that was pushed: its SHA-256 is not the one in its metadata. "
                f"Remove it, and the next cluster that builds it pushes its own."
            )
        ran = node_program.execute(self, wheels.write_command(self._folder, wheel), become=True, stdin=content)
        if ran["rc"]:
            raise UserError(f"{self._folder}/{wheel} cannot be written: {node_program.last_line(ran['stderr'])}")

    def _push(self, options: Mapping[str, Any]) -> dict[str, Any]:
        built = wheels.check_built(options["framework"], options["built"])
        if not built:
            return {"changed": False, "wheels": {}}
        target = _bucket(options)
        # Existing wheels are never replaced: a cluster could replace what others install.
        new = {name: built[name] for name in built.keys() - wheels.stored_names(target, options["framework"])}
        for name, sha256 in new.items() if not self.check_mode else ():
            self._upload(target, name, sha256)
        return {"changed": bool(new), "wheels": new}

    def _upload(self, target: Bucket, name: str, sha256: str) -> None:
        command = shlex.join(["cat", f"{self._folder}/{name}"])
        content = node_program.read_bytes(self._connection, command, self._host, wheels.MOST_BYTES)
        if hashlib.sha256(content).hexdigest() != sha256:
            raise UserError(f"{self._folder}/{name} has changed since it was built: its SHA-256 is not {sha256}.")
        with tempfile.NamedTemporaryFile() as file:
            file.write(content)
            file.flush()
            target.send(Path(file.name), name, sha256, lambda _: None)


def _bucket(options: Mapping[str, Any]) -> Bucket:
    aws = Aws.from_options(options)
    own = Names(options["cluster"], aws.account, aws.region).bucket
    return bucket.choose(aws, own, options["bucket"], wheels.PREFIX)
