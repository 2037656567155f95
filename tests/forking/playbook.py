"""Be an ansible-playbook whose ansible_playbook_python, localhost's interpreter, is the first argument.

The archives that Ansible builds for modules (0.3 s each), and what Jinja compiles, are kept in the interpreter's folder
for the next playbook.
"""

from __future__ import annotations

import gc
import sys
from pathlib import Path

sys.executable = sys.argv.pop(1)

from ansible import constants  # noqa: E402
from ansible.cli.playbook import main  # noqa: E402

sys.path.insert(0, str(Path(__file__).parents[2]))
from tests.forking.compiled import keep_templates  # noqa: E402

del sys.path[0]

if __name__ == "__main__":
    archives = Path(sys.executable).with_name("archives")
    archives.mkdir(exist_ok=True)
    (Path(constants.DEFAULT_LOCAL_TMP) / "ansiballz_cache").symlink_to(archives)
    keep_templates(archives.with_name("templates"))
    # Its workers are forked from it: so they neither visit nor copy what is loaded.
    gc.freeze()
    main()
