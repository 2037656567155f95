# Copyright: (c) 2026, the deeplearning.aws contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)

"""The form of ids and names that become parts of paths and of unit names."""

from __future__ import annotations

import re

RUN_ID = DATASET_NAME = r"[a-z0-9][a-z0-9._-]{0,47}"
ALL_RUNS = "all"
"""Stands for all runs where the id of one is expected."""


def is_run_id(text: str) -> bool:
    return text != ALL_RUNS and re.fullmatch(RUN_ID, text) is not None


def is_dataset_name(text: str) -> bool:
    return re.fullmatch(DATASET_NAME, text) is not None
