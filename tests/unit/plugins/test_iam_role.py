"""The role iam with stand-ins for the modules of amazon.aws, whose options differ between versions."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from ansible.errors import AnsibleError
from ansible_collections.deeplearning.aws.plugins.test.core import module_option

ROOT = Path(__file__).resolve().parents[3]
PROFILE_OPTIONS = ("create_instance_profile", "delete_instance_profile")
OPTIONS = ("name", "description", "assume_role_policy_document", "boundary", "tags", "purge_tags")

STAND_IN = '''#!/usr/bin/python
DOCUMENTATION = """
module: {name}
short_description: A stand-in
description: [It returns its parameters.]
options:
{options}
"""
from ansible.module_utils.basic import AnsibleModule

module = AnsibleModule({arguments})
module.exit_json(iam_role={{"role_id": "AROA"}}, got=module.params)
'''


def stand_in(folder: Path, name: str, options: tuple[str, ...]) -> None:
    """Write a module that takes these options alone."""
    documented = "\n".join(f"  {option}: {{description: [An option.], type: raw}}" for option in options)
    arguments = {option: {"type": "raw"} for option in options}
    text = STAND_IN.format(name=name, options=documented, arguments=repr(arguments))
    modules = folder / "ansible_collections/amazon/aws/plugins/modules"
    modules.mkdir(parents=True, exist_ok=True)
    (modules / f"{name}.py").write_text(text, encoding="utf-8")


def test_it_reads_the_documentation_of_the_installed_module() -> None:
    assert module_option("amazon.aws.iam_role", "boundary")
    assert not module_option("amazon.aws.iam_role", "nonesuch")
    with pytest.raises(AnsibleError, match=r"The module amazon\.aws\.nonesuch is not installed"):
        module_option("amazon.aws.nonesuch", "boundary")


DENIES_ONCE = """
import os
from ansible.module_utils.basic import AnsibleModule

module = AnsibleModule({arguments})
if not os.path.exists("{marker}"):
    open("{marker}", "w").close()
    module.fail_json(msg="Failed to put the policy", error={{"code": "AccessDenied", "message": "no policy allows it"}})
module.exit_json(changed=True)
"""
POLICY_OPTIONS = ("iam_type", "iam_name", "policy_name", "policy_json")


def play_the_role(folder: Path, *after: dict[str, object], **variables: object) -> subprocess.CompletedProcess[str]:
    settings = {
        "iam_cluster": "red",
        "iam_region": "us-east-1",
        "iam_account": "123456789012",
        "iam_bucket": "red-123456789012-us-east-1",
        "ansible_python_interpreter": sys.executable,
        **variables,
    }
    play = {
        "hosts": "localhost",
        "connection": "local",
        "gather_facts": False,
        "vars": settings,
        "tasks": [{"ansible.builtin.import_role": {"name": "deeplearning.aws.iam"}}, *after],
    }
    (folder / "play.yml").write_text(json.dumps([play]), encoding="utf-8")
    command = [str(Path(sys.executable).parent / "ansible-playbook"), "-i", "localhost,", str(folder / "play.yml")]
    environment = {
        **os.environ,
        "ANSIBLE_COLLECTIONS_PATH": f"{folder}:{ROOT / 'collections'}",
        "ANSIBLE_LOCAL_TEMP": str(folder / "ansible"),
    }
    return subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)


@pytest.mark.parametrize(("boundary", "code"), [("arn:aws:iam::123456789012:policy/edge", 0), ("", 2)])
def test_a_policy_is_denied_until_a_new_boundary_counts(tmp_path: Path, boundary: str, code: int) -> None:
    stand_in(tmp_path, "iam_role", (*OPTIONS, *PROFILE_OPTIONS))
    stand_in(tmp_path, "iam_policy", POLICY_OPTIONS)
    stand_in(tmp_path, "iam_instance_profile", ("name", "role", "tags", "purge_tags"))
    arguments = {option: {"type": "raw"} for option in POLICY_OPTIONS}
    text = DENIES_ONCE.format(arguments=repr(arguments), marker=tmp_path / "denied")
    policy = tmp_path / "ansible_collections/amazon/aws/plugins/modules/iam_policy.py"
    policy.write_text(text, encoding="utf-8")
    done = play_the_role(tmp_path, iam_permissions_boundary=boundary)
    assert done.returncode == code, done.stdout + done.stderr


@pytest.mark.parametrize("own", [PROFILE_OPTIONS, ()], ids=["with the options", "without them"])
def test_the_role_sets_only_options_that_the_module_has(tmp_path: Path, own: tuple[str, ...]) -> None:
    stand_in(tmp_path, "iam_role", (*OPTIONS, *own))
    stand_in(tmp_path, "iam_policy", POLICY_OPTIONS)
    stand_in(tmp_path, "iam_instance_profile", ("name", "role", "tags", "purge_tags"))
    show = {"ansible.builtin.debug": {"msg": "got {{ __iam_roles['results'][0]['got'] | to_json }}"}}
    done = play_the_role(tmp_path, show)
    assert done.returncode == 0, done.stdout + done.stderr
    for option in PROFILE_OPTIONS:
        assert (f'"{option}": false' in done.stdout.replace("\\", "")) == (option in own)
