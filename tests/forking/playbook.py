"""Be an ansible-playbook whose ansible_playbook_python, localhost's interpreter, is the first argument."""

from __future__ import annotations

import sys

sys.executable = sys.argv.pop(1)

from ansible.cli.playbook import main  # noqa: E402

if __name__ == "__main__":
    main()
