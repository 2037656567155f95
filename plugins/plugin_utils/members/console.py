# Copyright: (c) 2026, the deeplearning.aws contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)

"""What a machine has written to its console."""

from __future__ import annotations

from ...module_utils.aws.client import Aws, AwsError

_NOT_NITRO = ("UnsupportedOperation", "InvalidParameterCombination")


def console_output(aws: Aws, instance: str, may_have_ended: bool = False) -> str:
    """Return what the console has shown so far, empty if AWS shows nothing.

    Without `Latest` AWS returns what it posted some minutes after the machine started or ended, which is nothing while
    a machine of the Nitro system runs. Older instance types do not support `Latest`. Of a machine that has ended, AWS
    may have only what it posted then.
    """
    try:
        answer = aws.call("ec2", "get_console_output", InstanceId=instance, Latest=True)
    except AwsError as problem:
        if problem.code not in _NOT_NITRO:
            raise
        answer = {}
        may_have_ended = True
    if may_have_ended and not answer.get("Output"):
        return _posted_output(aws, instance)
    return str(answer.get("Output") or "")


def console_outputs(aws: Aws, instance: str) -> list[str]:
    """Return the latest output, and what AWS posted unless that is part of it.

    Each may have what the other lacks: the latest one is limited in size, and what was posted ends earlier.
    """
    outputs = [console_output(aws, instance), _posted_output(aws, instance)]
    if outputs[1] in outputs[0]:
        del outputs[1]
    return [output for output in outputs if output]


def _posted_output(aws: Aws, instance: str) -> str:
    return str(aws.call("ec2", "get_console_output", InstanceId=instance).get("Output") or "")
