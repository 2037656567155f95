# Copyright: (c) 2026, the deeplearning.aws contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)

"""Validate the settings and options of a playbook. The documentation is in plugins/modules/check_input.py."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from ansible.errors import AnsibleError
from ansible.module_utils.parsing.convert_bool import boolean
from ansible.utils.vars import load_extra_vars
from ansible_collections.deeplearning.aws.plugins.module_utils.aws.client import Aws, AwsError
from ansible_collections.deeplearning.aws.plugins.module_utils.contract.errors import UserError
from ansible_collections.deeplearning.aws.plugins.module_utils.messages import join_problems
from ansible_collections.deeplearning.aws.plugins.plugin_utils.action import Action
from ansible_collections.deeplearning.aws.plugins.plugin_utils.lock import holding, run_starts
from ansible_collections.deeplearning.aws.plugins.plugin_utils.lock.store import LockStore
from ansible_collections.deeplearning.aws.plugins.plugin_utils.members import namesake
from ansible_collections.deeplearning.aws.plugins.plugin_utils.members.hosts import READ_REGION, REFUSED
from ansible_collections.deeplearning.aws.plugins.plugin_utils.members.recorded_place import project_folder
from ansible_collections.deeplearning.aws.plugins.plugin_utils.options import (
    command_line,
    playbook_input,
    recorded_settings,
    run_request,
    run_rules,
    setting_rules,
)
from ansible_collections.deeplearning.aws.plugins.plugin_utils.options.option import Validated, validate
from ansible_collections.deeplearning.aws.plugins.plugin_utils.options.run_options import LOCKING, options_of
from ansible_collections.deeplearning.aws.plugins.plugin_utils.options.settings import (
    NOT_RECORDED,
    PREFIX,
    SECTIONS,
    TABLE,
)
from ansible_collections.deeplearning.aws.plugins.plugin_utils.requester import requester
from ansible_collections.deeplearning.aws.plugins.plugin_utils.runs import code_source

ROLES = Path(__file__).resolve().parents[2] / "roles"


class ActionModule(Action):
    _requires_connection = False

    def handle(self, options: dict[str, Any], task_vars: Mapping[str, Any]) -> dict[str, Any]:
        playbook, roles = options["playbook"], [role.name for role in ROLES.iterdir() if role.is_dir()]
        names = [name for name in sorted(task_vars) if playbook_input.is_setting(name, roles)]
        settings, problems = self._resolve((name for name in names if name in TABLE), task_vars)
        unknown = {name: playbook_input.misspelt_setting(name) for name in names if name not in TABLE}
        problems += playbook_input.no_inventory(playbook, task_vars)
        problems += filter(None, [task_vars.get(REFUSED), *unknown.values()])
        variables, unresolved = self._resolve(set(options_of(playbook)) & set(task_vars), task_vars)
        emr = playbook == "emr" or boolean(variables.get("emr", False), strict=False)
        # What is wrong in any case is reported before the first call to AWS.
        is_wrong = problems + unresolved + validate(TABLE.values(), settings).problems
        sessions = _Sessions()
        selected = None if is_wrong else _selected_cluster(settings)
        # Before the settings: whoever records others after this moment is noticed when the lock is taken.
        lock_version, unlockable = _lock_version(playbook, selected, sessions, self.check_mode)
        recorded, unread = _recorded(playbook, selected, sessions)
        is_provisioning = playbook in playbook_input.PROVISIONING
        # A public key takes the place of the recorded key pair.
        folder = project_folder(task_vars)
        here = (
            {"cluster_key_name": ""}
            if settings.get("cluster_public_key_file")
            else recorded_settings.private_key(folder, str(settings.get("cluster_name", "")))
        )
        checked_settings = setting_rules.check({**recorded, **here, **settings}, is_provisioning, emr)
        cluster = checked_settings.values
        checked = run_rules.check(
            playbook, variables, cluster.get("default_framework") or "", cluster.get("efs_mount") or "/efs"
        )
        problems += checked_settings.problems + unresolved + checked.problems
        extra_vars = load_extra_vars(self._loader)
        problems += playbook_input.unknown_names(playbook, extra_vars, roles)
        # In users' own playbooks other names of a region may be theirs.
        meant = extra_vars if command_line.is_of_this_collection() else {}
        problems += playbook_input.other_regions(cluster.get("region"), task_vars.get(READ_REGION), meant)
        if problems:
            raise UserError(join_problems(problems, "{} settings are wrong:"))
        if playbook in playbook_input.NEEDS_MEMBERS and task_vars.get("deeplearning_problem"):
            raise UserError(str(task_vars["deeplearning_problem"]))
        if unread and is_provisioning:
            raise unread
        if unlockable:
            raise unlockable
        refusal = _namesake(playbook, folder, cluster, sessions)
        if refusal and playbook != "plan":
            raise UserError(refusal)
        warnings = [*filter(None, [refusal]), *playbook_input.foreign_names(playbook, extra_vars, roles)]
        warnings += [playbook_input.foreign_setting(name) for name, meant in unknown.items() if not meant]
        if unread:
            warnings += [f"What the cluster was made with is unknown, so the defaults count: {unread}"]
        result = {"changed": False, "cluster": setting_rules.complete(cluster, emr), "options": checked.values}
        result |= {"emr": emr, "warnings": warnings, **_changes(recorded, settings, cluster)}
        result["requested_by"] = requester()
        result["lock_version"] = lock_version
        if playbook in run_starts.PLAYBOOKS and not self.check_mode and not unread:
            blocked = run_starts.blocking_sentence(sessions.get(cluster), cluster["name"])
            if blocked:
                raise UserError(blocked)
        return _with_run(result, checked, variables) if playbook == "train" else result

    def _resolve(self, names: Iterable[str], variables: Mapping[str, Any]) -> tuple[dict[str, Any], list[str]]:
        """Return the variables with their templates evaluated, and the problems with those."""
        resolved, problems = {}, []
        for name in sorted(names):
            try:
                resolved[name] = self._templar.template(variables[name])
            except AnsibleError as error:
                problems.append(f"{name} cannot be evaluated: {error.message.strip()}")
        return resolved, problems


class _Sessions:
    """One session for each region and credentials, so that the account is looked up once."""

    def __init__(self) -> None:
        self._sessions: dict[tuple[str, str, str], Aws] = {}

    def get(self, options: Mapping[str, Any]) -> Aws:
        key = (options["region"], options["profile"], options["role_arn"])
        if key not in self._sessions:
            self._sessions[key] = Aws.from_options(options)
        return self._sessions[key]


def _selected_cluster(settings: Mapping[str, Any]) -> dict[str, Any] | None:
    """Return name, region and credentials of the cluster that is meant, or None if they are wrong."""
    which = validate(SECTIONS[0][2], settings)
    if which.problems:
        return None
    return {name.removeprefix(PREFIX): value for name, value in which.values.items()}


def _lock_version(
    playbook: str, selected: Mapping[str, Any] | None, sessions: _Sessions, check_mode: bool
) -> tuple[str, UserError | None]:
    """Return the version of the cluster's lock, for playbooks that plan first and take the lock then; or why not."""
    takes_lock_after_plan = playbook in playbook_input.PROVISIONING and playbook in LOCKING
    if selected is None or check_mode or not takes_lock_after_plan:
        return "", None
    try:
        return holding.current_version(LockStore(sessions.get(selected), selected["name"])), None
    except UserError as error:
        return "", error


def _recorded(
    playbook: str, selected: Mapping[str, Any] | None, sessions: _Sessions
) -> tuple[dict[str, Any], UserError | None]:
    """Return the settings that the cluster was made with, or why they cannot be read."""
    if selected is None or playbook in playbook_input.NO_RECORD:
        return {}, None
    try:
        recorded = recorded_settings.read(sessions.get(selected), selected["name"])
    except UserError as error:
        return {}, error
    return recorded, None


def _namesake(playbook: str, folder: Path, cluster: Mapping[str, Any], sessions: _Sessions) -> str:
    """Return a sentence if the playbook would replace the files of a cluster of the same name in another place."""
    if playbook in playbook_input.NO_FILES:
        return ""
    again = command_line.repeat_options()
    try:
        return namesake.refusal(sessions.get(cluster), folder, cluster["name"], again, cluster["summary_file"])
    except AwsError:
        # The account is unknown. The playbook's own calls fail with the same sentence.
        return ""


def _changes(recorded: Mapping[str, Any], settings: Mapping[str, Any], cluster: Mapping[str, Any]) -> dict[str, Any]:
    """Return what to record, which settings are given, and the former values of those that change."""
    specified = [name.removeprefix(PREFIX) for name in settings]
    compared = {name.removeprefix(PREFIX) for name in settings if recorded and name not in NOT_RECORDED}
    before, now = setting_rules.check(recorded, provisioning=False).values, dict(cluster)
    # What follows from others changes with them.
    for values in (before, now):
        values["master_instance_type"] = setting_rules.master_type(values)
    if "instance_type" in compared:
        compared.add("master_instance_type")
    if recorded and cluster["public_key_file"]:
        compared.add("key_name")
        now["key_name"] = cluster["name"]
    kept = {PREFIX + name: cluster[name] for name in specified}
    if cluster["public_key_file"]:
        # It is imported as a key pair with the cluster's name, which the next playbook needs no file for.
        kept["cluster_key_name"] = cluster["name"]
    return {
        "record": recorded_settings.to_record(recorded, kept),
        "recorded": bool(recorded),
        "specified": sorted(specified),
        "settings_before": {
            name: before[name] for name in sorted(compared) if before.get(name, now[name]) != now[name]
        },
    }


def _with_run(result: Mapping[str, Any], checked: Validated, variables: Mapping[str, Any]) -> dict[str, Any]:
    """Return the result of train.yml. What is not sent with the code is a warning, before any machine does anything."""
    run = _train(checked, variables, result)
    left_out = _left_out(run["options"])
    warnings = [*result["warnings"]]
    if left_out:
        warnings.append(code_source.sentence(left_out))
    return {**result, **run, "code_left_out": left_out, "warnings": warnings}


def _left_out(options: Mapping[str, Any]) -> list[str]:
    if not options["script_file"]:
        return []
    source = code_source.CodeSource(
        options["script_file"],
        options["sync"] or "",
        options["requirements_file"],
        tuple(options["code_include"] or ()),
    )
    return list(code_source.select(source).left_out)


def _train(checked: Validated, variables: Mapping[str, Any], result: Mapping[str, Any]) -> dict[str, Any]:
    options = run_request.complete(checked.values, result["cluster"]["efs_mount"])
    # env may hold secrets, and -v prints results: tasks read the variable itself.
    env = options.pop("env")
    return {
        "options": options,
        "request": run_request.request(options, checked.specified, result["requested_by"]),
        "recipe_env": {} if "env" in variables else env,
    }
