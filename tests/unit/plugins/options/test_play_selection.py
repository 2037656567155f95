"""Options of ansible-playbook that leave out plays or tasks: which are refused, and with which words."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from ansible_collections.deeplearning.aws.plugins.plugin_utils.options import play_selection
from ansible_collections.deeplearning.aws.plugins.plugin_utils.options.play_selection import (
    COMMAND_LINE,
    PlayOptions,
    PlayTarget,
    Tag,
    machine_refusals,
    refusals,
    selects_localhost,
    takes_limit,
)
from ansible_collections.deeplearning.aws.plugins.plugin_utils.options.run_options import PLAYBOOKS

ROOT = Path(__file__).resolve().parents[4]
MASTER = PlayTarget("deeplearning-master", frozenset({"all", "cluster", "master", "zone_a"}))
WORKER = PlayTarget("deeplearning-worker2", frozenset({"all", "cluster", "workers", "zone_b"}))
JOINING = PlayTarget("i-1", frozenset({"all", "joining"}))


def tags(*names: str, origin: str = COMMAND_LINE) -> tuple[Tag, ...]:
    return tuple(Tag(name, origin) for name in names)


@pytest.mark.parametrize(
    ("limit", "has_localhost", "expected"),
    [
        (["workers"], False, False),
        (["localhost"], False, True),
        (["deeplearning-worker2", "localhost"], False, True),
        (["127.0.0.1"], False, True),
        # Ansible's implicit localhost is in no group, and no pattern but its names matches it.
        (["all"], False, False),
        (["*"], False, False),
        (["local*"], False, False),
        (["!workers"], False, False),
        (["all", "localhost", "!localhost"], False, False),
        (["localhost", "&workers"], False, False),
        (["localhost", "&localhost", "!workers"], False, True),
        # A localhost of the inventory is a host like others.
        (["all"], True, True),
        (["local*"], True, True),
        (["~local.*"], True, True),
        (["!workers"], True, True),
        (["workers"], True, False),
        (["~("], True, False),
    ],
)
def test_a_limit_selects_localhost_as_ansible_does(limit: list[str], has_localhost: bool, expected: bool) -> None:
    assert selects_localhost(limit, has_localhost) is expected


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        (PlayOptions(run_tags=tags("all")), ""),
        (PlayOptions(run_tags=tags("all", "iam")), ""),
        (PlayOptions(run_tags=tags("untagged")), ""),
        (PlayOptions(limit=("workers", "localhost")), ""),
        # Molecule passes these to every playbook.
        (PlayOptions(run_tags=tags("all"), skip_tags=tags("molecule-notest", "notest")), ""),
        (PlayOptions(skip_tags=tags("tagged", "always")), ""),
        (
            PlayOptions(limit=("workers",)),
            "--limit workers leaves out localhost, where deeplearning.aws.destroy runs. This playbook always works on "
            "the whole cluster: run it without --limit.",
        ),
        (
            PlayOptions(run_tags=tags("iam", "network")),
            "--tags iam,network (from the command line) leaves out all tasks of deeplearning.aws.destroy, which have "
            "no tags. Run it without these tags.",
        ),
        (PlayOptions(run_tags=tags("always")), "--tags always (from the command line) leaves out all tasks"),
        (PlayOptions(run_tags=tags("tagged")), "--tags tagged (from the command line) leaves out all tasks"),
        (
            PlayOptions(run_tags=(*tags("a"), *tags("b", origin="ANSIBLE_RUN_TAGS"))),
            "--tags a,b (from the command line, from the environment variable ANSIBLE_RUN_TAGS) leaves out",
        ),
        (
            PlayOptions(skip_tags=(*tags("x"), *tags("untagged", origin="/p/ansible.cfg"))),
            "--skip-tags untagged (from skip in the section [tags] of /p/ansible.cfg) leaves out all tasks",
        ),
        (
            PlayOptions(run_tags=tags("x", origin="/p/ansible.cfg")),
            "--tags x (from run in the section [tags] of /p/ansible.cfg) leaves out all tasks",
        ),
        (PlayOptions(skip_tags=tags("all")), "--skip-tags all (from the command line) leaves out all tasks"),
        (PlayOptions(start_at_task="Remove"), "--start-at-task Remove leaves out the tasks before it"),
    ],
)
def test_an_option_that_leaves_out_our_tasks_is_refused(options: PlayOptions, sentence: str) -> None:
    refused = refusals(["destroy"], options)
    assert len(refused) == (1 if sentence else 0)
    assert "".join(refused).startswith(sentence)


def test_a_part_of_a_playbook_is_not_checked() -> None:
    assert refusals(["node", "bake"], PlayOptions(limit=("a",), run_tags=tags("x"))) == []


@pytest.mark.parametrize(
    ("playbook", "limit", "left_out"),
    [
        ("destroy", ["localhost"], ""),
        ("stop", ["localhost", "cluster", "joining"], ""),
        ("stop", ["localhost", "all"], ""),
        ("stop", ["localhost", "deeplearning-worker2", "i-1"], "deeplearning-master"),
        ("stop", ["localhost", "all", "!zone_b"], "deeplearning-worker2"),
        ("stop", ["localhost", "deeplearning-*"], "i-1"),
        ("stop", [], ""),
        ("configure", ["localhost"], ""),
        ("site", ["localhost", "all"], ""),
        ("site", ["localhost", "deeplearning-*", "i-1"], "the machines that it creates"),
    ],
)
def test_a_limit_leaves_out_no_machine_of_a_playbook(playbook: str, limit: list[str], left_out: str) -> None:
    refused = machine_refusals([playbook], limit, [MASTER, WORKER, JOINING])
    assert len(refused) == (1 if left_out else 0)
    if left_out:
        assert f"--limit {','.join(limit)} leaves out {left_out}, and deeplearning.aws.{playbook}" in refused[0]


def test_configure_alone_applies_a_limit_itself() -> None:
    assert takes_limit(["configure"])
    assert not takes_limit(["configure", "health"]) and not takes_limit([])
    assert refusals(["configure"], PlayOptions(limit=("deeplearning-worker2",))) == []


def hosts_of(playbook: Path) -> set[str]:
    """Return the host patterns of all plays of a playbook, with those that it imports."""
    patterns = set()
    for play in yaml.safe_load(playbook.read_text()):
        if "ansible.builtin.import_playbook" in play:
            patterns |= hosts_of(playbook.parent / play["ansible.builtin.import_playbook"])
        else:
            patterns.add(play["hosts"])
    return patterns


@pytest.mark.parametrize("playbook", PLAYBOOKS)
def test_playbooks_with_plays_for_machines_are_known(playbook: str) -> None:
    patterns = hosts_of(ROOT / "playbooks" / f"{playbook}.yml")
    assert "localhost" in patterns
    assert (patterns != {"localhost"}) is (playbook in play_selection.ON_MACHINES)


def ran(folder: Path, *arguments: str, **environment: str) -> tuple[int, str]:
    """Return the exit code and the output of ansible-playbook in this checkout. Nothing answers as AWS."""
    done = subprocess.run(
        [Path(sys.executable).parent / "ansible-playbook", *arguments],
        cwd=ROOT,
        env={
            "PATH": "/usr/bin:/bin",
            "HOME": str(folder),
            "AWS_ENDPOINT_URL": "http://127.0.0.1:9",
            "AWS_ACCESS_KEY_ID": "a-key-id",
            "AWS_SECRET_ACCESS_KEY": "a-secret-key",
            "AWS_MAX_ATTEMPTS": "1",
            **environment,
        },
        capture_output=True,
        text=True,
        check=False,
    )
    return done.returncode, done.stdout + done.stderr


def test_destroy_never_returns_success_because_of_a_limit(tmp_path: Path) -> None:
    code, output = ran(tmp_path, "destroy.yml", "-e", "destroy=deeplearning", "--limit", "workers")
    assert code == 1
    assert "--limit workers leaves out localhost, where deeplearning.aws.destroy runs." in output


def test_tags_of_the_environment_are_refused_and_those_of_others_ignored(tmp_path: Path) -> None:
    play = ["deeplearning.aws.plan", "--skip-tags", "molecule-notest,notest"]
    code, output = ran(tmp_path, *play, ANSIBLE_RUN_TAGS="iam")
    assert code == 1
    assert "--tags iam (from the environment variable ANSIBLE_RUN_TAGS) leaves out all tasks" in output
    code, output = ran(tmp_path, *play)
    # It has come to its settings.
    assert code == 2 and "cluster_ssh_allowed_cidrs is not given" in output


def test_tags_of_a_configuration_are_refused_with_its_path(tmp_path: Path) -> None:
    config = tmp_path / "ansible.cfg"
    text = (ROOT / "ansible.cfg").read_text()
    text = text.replace("collections_path = collections", f"collections_path = {ROOT}/collections")
    config.write_text(text.replace("inventory = ", f"inventory = {ROOT}/") + "\n[tags]\nskip = untagged\n")
    code, output = ran(tmp_path, "deeplearning.aws.status", ANSIBLE_CONFIG=str(config))
    assert code == 1
    assert f"--skip-tags untagged (from skip in the section [tags] of {config}) leaves out" in " ".join(output.split())


@pytest.mark.parametrize("options", [["--limit", "somewhere"], ["--tags", "iam", "-v"]])
def test_with_an_inventory_that_is_not_ours_a_playbook_that_did_nothing_fails(
    options: list[str], tmp_path: Path
) -> None:
    code, output = ran(tmp_path, "-i", "somewhere,", "deeplearning.aws.plan", *options)
    assert code == 2
    assert "Nothing was done: no task of this playbook ran." in output
