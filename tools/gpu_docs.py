"""Write into docs/training.md which framework computes on which GPUs.

.venv/bin/python tools/gpu_docs.py
"""

from __future__ import annotations

import sys
from collections import defaultdict
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from tools.made_part import MadePart  # noqa: E402

PART = MadePart(ROOT / "docs/training.md", "GPUs", "gpu_docs")


def tables() -> str:
    from ansible_collections.deeplearning.aws.plugins.filter.core import gpu_tables
    from ansible_collections.deeplearning.aws.plugins.module_utils.plan import gpu_types, gpus

    frameworks = gpu_tables([])
    words = {gpus.NATIVE: "yes", gpus.PTX: "slow first start", gpus.NONE: "no"}
    families = defaultdict(list)
    for name, family in gpu_types.FAMILIES.items():
        families[family.accelerator].append(name)
    order = sorted(families, key=lambda item: gpus.version(gpu_types.CAPABILITIES.get(item.name, "0.0")), reverse=True)
    lines = [f"| types | GPU | compute capability | {' | '.join(frameworks)} |", "| --- " * (3 + len(frameworks)) + "|"]
    for accelerator in order:
        maker, name, machine = accelerator
        gpu = f"{'' if maker == gpu_types.NVIDIA else maker + ' '}{name}{', arm64' if machine == gpu_types.ARM else ''}"
        cells = [words[gpus.decide(table, accelerator).level] for table in frameworks.values()]
        row = [", ".join(families[accelerator]), gpu, gpu_types.CAPABILITIES.get(name, "–"), *cells]
        lines.append(f"| {' | '.join(row)} |")
    lines += ["", "| framework | CUDA | least driver | its own library | kernels for | PTX for |", "| --- " * 6 + "|"]
    for framework, table in frameworks.items():
        own = table["libraries"][0]
        row = [framework, table["cuda"], table["driver"], own["package"], " ".join(own["kernels"]), own["ptx"] or "–"]
        lines.append(f"| {' | '.join(row)} |")
    return "\n".join(lines)


def renewed() -> str:
    return PART.renewed(tables())


if __name__ == "__main__":
    from ansible.plugins.loader import init_plugin_loader

    init_plugin_loader([str(ROOT / "collections")])
    PART.write(renewed())
