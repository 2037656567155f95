"""Be an ansible-playbook whose ansible_playbook_python, localhost's interpreter, is the first argument.

The archives that Ansible builds for modules (0.3 s each), and what Jinja compiles, are kept in the interpreter's folder
for the next playbook. `ansible.builtin.pause`, with which provision.yml waits for what AWS does not show yet, ends at
once.
"""

from __future__ import annotations

import gc
import sys
import time
from pathlib import Path
from types import SimpleNamespace

sys.executable = sys.argv.pop(1)

from ansible import constants  # noqa: E402
from ansible.cli.playbook import main  # noqa: E402
from ansible.plugins.action import pause  # noqa: E402

sys.path.insert(0, str(Path(__file__).parents[2]))
from tests.forking.compiled import keep_templates  # noqa: E402

del sys.path[0]

if __name__ == "__main__":
    archives = Path(sys.executable).with_name("archives")
    archives.mkdir(exist_ok=True)
    (Path(constants.DEFAULT_LOCAL_TMP) / "ansiballz_cache").symlink_to(archives)
    keep_templates(archives.with_name("templates"))
    pause.time = SimpleNamespace(time=time.time, sleep=lambda _seconds: None)
    # Its workers are forked from it: so they neither visit nor copy what is loaded.
    gc.freeze()
    main()
