"""Commands of the pages that prepare published programs."""

from __future__ import annotations

import re
from pathlib import Path

DOCS = Path(__file__).resolve().parents[2] / "docs"
CFN, MASK_RCNN, EMR = (DOCS / f"{name}.md" for name in ("from-deeplearning-cfn", "from-the-old-scripts", "emr"))


def block(page: Path, part: str) -> str:
    """Return the page's only block of commands that contains this text."""
    blocks = re.findall(r"^```\w*\n(.*?)^```$", page.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)
    (block,) = [text for text in blocks if part in text]
    return str(block)


def tensorflow_changes() -> str:
    return block(CFN, "tf.disable_v2_behavior()")


def conda_links() -> str:
    return block(MASK_RCNN, "ln -sf $(which mpirun orted)")


def example_changes() -> str:
    return block(MASK_RCNN, "fasterrcnn.add_old_names()")


def owner_remedy() -> str:
    return block(EMR, "chown -R root:").strip()
