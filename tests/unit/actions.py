"""Running one of our actions in this process, as Ansible does in a worker. The node is this machine."""

from __future__ import annotations

import importlib
from types import SimpleNamespace
from typing import Any

from ansible.parsing.dataloader import DataLoader
from ansible.playbook.play_context import PlayContext
from ansible.plugins.loader import connection_loader
from ansible.template import Templar


def run_action(
    action: str, check: bool = False, task_vars: dict[str, Any] | None = None, **arguments: Any
) -> dict[str, Any]:
    """What it returns; a failure too, with `failed`."""
    module = importlib.import_module(f"ansible_collections.deeplearning.aws.plugins.action.{action}")
    task = SimpleNamespace(
        args=arguments, async_val=0, check_mode=check, delegate_to=None, action=action, environment=None
    )
    connection = connection_loader.get("ansible.builtin.local", PlayContext())
    loader = DataLoader()
    made = module.ActionModule(task, connection, PlayContext(), loader, Templar(loader), None)
    result: dict[str, Any] = made.run(None, {"inventory_hostname": "deeplearning-master", **(task_vars or {})})
    return result
