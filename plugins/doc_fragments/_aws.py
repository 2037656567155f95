# Copyright: (c) 2026, the deeplearning.aws contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)

"""Options that all modules and plugins of this collection share.

PRIVATE to the collection: it may change at any time.
"""

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
      - The profile of the AWS configuration to take credentials from; without one, the SDK looks where it always does.
    type: str
    default: ""
  role_arn:
    description: A role to assume first.
    type: str
    default: ""
requirements:
  - boto3 >= 1.35.0
  - botocore >= 1.35.0
author:
  - The deeplearning.aws contributors (@deeplearning-aws)
"""
