"""The encryption of new disks by default, which the fault `ebs-key` switches on."""

from __future__ import annotations

from typing import Any

from localcloud.core.cloud import Call, answers


@answers("ec2", "GetEbsEncryptionByDefault")
def get_ebs_encryption_by_default(call: Call) -> dict[str, Any]:
    is_on = bool(call.cloud.faults.of_kind("ebs-key"))
    return {"EbsEncryptionByDefault": is_on, "SseType": "sse-ebs" if is_on else "none"}


@answers("ec2", "GetEbsDefaultKmsKeyId")
def get_ebs_default_kms_key_id(call: Call) -> dict[str, Any]:
    keys = [str(fault.value) for fault in call.cloud.faults.of_kind("ebs-key")]
    return {"KmsKeyId": keys[-1] if keys else "alias/aws/ebs"}
