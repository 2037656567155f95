# Copyright: (c) 2026, the deeplearning.aws contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)

"""Options of the modules of this collection that call AWS."""

from __future__ import annotations


class ModuleDocFragment:
    DOCUMENTATION = r"""
options:
  region:
    description: The AWS region.
    type: str
    required: true
  profile:
    description:
      - The profile of the AWS configuration to take credentials from. By default, the provider chain of the AWS SDK.
    type: str
    default: ""
  role_arn:
    description: A role to assume first.
    type: str
    default: ""
requirements:
  - boto3 >= 1.35.69
  - botocore >= 1.35.69
  - PyYAML
"""
