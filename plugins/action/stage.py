# Copyright: (c) 2026, the deeplearning.aws contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)

"""Stages a data set in a bucket, and tells of it meanwhile. Its documentation is in plugins/modules/stage.py."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from ansible.plugins.action import ActionBase
from ansible.utils.display import Display
from ansible_collections.deeplearning.aws.plugins.module_utils._aws import ARGUMENTS, Aws, AwsProblem
from ansible_collections.deeplearning.aws.plugins.module_utils._names import Names
from ansible_collections.deeplearning.aws.plugins.plugin_utils import _looking
from ansible_collections.deeplearning.aws.plugins.plugin_utils._stage import Bucket, stage
from ansible_collections.deeplearning.aws.plugins.plugin_utils._stage_sets import Unstageable
from ansible_collections.deeplearning.aws.plugins.plugin_utils._teller import Teller, on_terminal

SPEC: dict[str, dict[str, Any]] = {
    **ARGUMENTS,
    "cluster": {"type": "str", "required": True},
    "data": {"type": "str", "required": True},
    "source_dir": {"type": "str", "default": ""},
    "bucket": {"type": "str", "default": ""},
    "folder": {"type": "str", "required": True},
}


class ActionModule(ActionBase):  # type: ignore[misc]
    _requires_connection = False
    _supports_check_mode = True

    def run(self, tmp: str | None = None, task_vars: dict[str, Any] | None = None) -> dict[str, Any]:
        super().run(tmp, task_vars)
        given = self.validate_argument_spec(argument_spec=SPEC)[1]
        display = Display()
        teller = Teller(display.display, on_terminal(), display.columns)

        def tell(what: str, done: int, total: int) -> None:
            teller.progress(f"{what}: {done / 2**20:.0f} of {total / 2**20:.0f} MiB", done / total if total else None)

        source = Path(given["source_dir"]).expanduser() if given["source_dir"] else None
        folder = Path(given["folder"]).expanduser() / given["data"]
        try:
            bucket = bucket_of(_looking.aws_of(given), given)
            return stage(bucket, given["data"], source, folder, tell, bool(self._task.check_mode))
        except (AwsProblem, Unstageable) as trouble:
            return {"failed": True, "msg": str(trouble)}
        except OSError as trouble:
            what = f"{trouble.filename or folder}: {trouble.strerror}"
            return {"failed": True, "msg": f"{what}. Mend that and run the same command again: it goes on from there."}
        finally:
            teller.close()


def bucket_of(aws: Aws, given: dict[str, Any]) -> Bucket:
    """The cluster's own, or the one that was named."""
    if not given["bucket"]:
        account = str(aws.call("sts", "get_caller_identity")["Account"])
        name = Names(given["cluster"], account, given["region"]).bucket
        return Bucket(aws, name, f"data/{given['data']}", account)
    name, _unused, prefix = given["bucket"].removeprefix("s3://").strip("/").partition("/")
    if not given["bucket"].startswith("s3://") or not name:
        raise Unstageable(f"bucket is {given['bucket']}: give s3://bucket or s3://bucket/prefix.")
    return Bucket(aws, name, f"{prefix}/{given['data']}".strip("/"))
