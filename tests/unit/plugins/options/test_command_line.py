"""The -e options that a suggested command repeats."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from ansible import constants, context
from ansible_collections.deeplearning.aws.plugins.plugin_utils.options.command_line import (
    PLACE,
    REGION,
    repeat_options,
    settings_among,
)


def test_commands_repeat_the_options_that_select_the_cluster() -> None:
    options = ["cluster_name=red", "@my file.yml", "destroy=red", '{"destroy": "red", "cluster_region": "x"}']
    assert settings_among(options) == """ -e cluster_name=red -e '@my file.yml' -e '{"cluster_region": "x"}'"""
    assert settings_among(["destroy=red cluster_name=red", '{"destroy": "red"}']) == " -e cluster_name=red"
    assert (
        settings_among(['cluster_summary_file="my file.json" x=1']) == """ -e 'cluster_summary_file="my file.json"'"""
    )


def test_a_command_for_another_place_repeats_neither_region_nor_credentials() -> None:
    options = ["cluster_name=red cluster_region=x", '{"cluster_profile": "mine", "cluster_worker_count": 2}']
    expected = """ -e cluster_name=red -e '{"cluster_worker_count": 2}'"""
    assert settings_among(options, without=PLACE) == expected
    assert settings_among(["cluster_region=x"], without=REGION) == ""


def test_a_file_below_the_current_folder_is_named_as_it_is_typed_there() -> None:
    file = Path("files/demo.yml")
    assert file.exists() and settings_among([f"@{file.absolute()}"]) == f" -e @{file}"
    assert settings_among(["@/somewhere/demo.yml"]) == " -e @/somewhere/demo.yml"


def test_commands_repeat_no_secrets() -> None:
    options = [
        "ansible_become_password=S3cr3t",
        "cluster_registry_token=S3cr3t cluster_name=red",
        "password='S3cr3t cluster_region=S3cr3t'",
        '{"env": {"API_KEY": "S3cr3t"}, "cluster_availability_zones": ["a"], "ansible_password": "S3cr3t"}',
        "{api_secret: S3cr3t, cluster_worker_count: 2}",
        '{"api_key": "S3cr3t"',
        "password='S3cr3t",
        "- S3cr3t",
    ]
    files = "cluster_public_key_file=~/k.pub cluster_private_key_file=~/k cluster_key_name=mine"
    assert settings_among([*options, files]) == (
        """ -e cluster_name=red -e '{"cluster_availability_zones": ["a"]}' -e '{"cluster_worker_count": 2}'"""
        f" -e '{files}'"
    )


def test_the_consent_is_never_repeated() -> None:
    assert settings_among(["{destroy: blue}"]) == ""
    assert settings_among(["{destroy: blue, cluster_name: red}"]) == """ -e '{"cluster_name": "red"}'"""


def test_quoted_values_stay_in_one_piece() -> None:
    assert settings_among(["cluster_private_key_file='/home/me/my key' nodes=2"], "mine") == (
        """ -e run_id=mine -e 'cluster_private_key_file='"'"'/home/me/my key'"'"''"""
    )


def test_of_a_file_that_holds_other_variables_only_the_settings_are_repeated(tmp_path: Path) -> None:
    cluster, run = tmp_path / "demo.yml", tmp_path / "run.yml"
    cluster.write_text("cluster_name: red\ncluster_worker_count: 2\n")
    run.write_text("framework: pytorch\ncluster_name: red\nenv: {TOKEN: S3cr3t}\n")
    options = [
        f"@{cluster}",
        f"@{run}",
        '{"cluster_availability_zones": ["a"], "nodes": 2}',
        "cluster_name=red nodes=2",
        "dataset=x",
    ]
    assert settings_among(options, "mine") == (
        f""" -e run_id=mine -e @{cluster} -e '{{"cluster_name": "red"}}' -e '{{"cluster_availability_zones": ["a"]}}'"""
        " -e cluster_name=red"
    )


@pytest.mark.parametrize(
    ("extra_vars", "run_id", "options"),
    [
        (("cluster_name=red", "destroy=red"), "", " -e cluster_name=red"),
        (("cluster_name=red",), "mine", " -e run_id=mine -e cluster_name=red"),
        ((), "", ""),
        (None, "mine", " -e run_id=mine"),
    ],
)
def test_the_options_of_this_command_line_are_repeated(
    extra_vars: Any, run_id: str, options: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(context, "CLIARGS", {"extra_vars": extra_vars})
    assert repeat_options(run_id) == options


def test_an_inventory_that_is_no_default_is_repeated(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(constants, "DEFAULT_HOST_LIST", ["/project/aws.deeplearning.yml"])
    here = Path("inventory/my blue.deeplearning.yml").absolute()
    named = (str(here), "/project/aws.deeplearning.yml")
    monkeypatch.setattr(context, "CLIARGS", {"inventory": named, "extra_vars": ("cluster_spot=true",)})
    expected = " -i 'inventory/my blue.deeplearning.yml' -i /project/aws.deeplearning.yml -e cluster_spot=true"
    assert repeat_options() == expected
    monkeypatch.setattr(context, "CLIARGS", {"inventory": named[1:], "extra_vars": ()})
    assert repeat_options() == ""


def test_a_file_that_cannot_be_read_is_repeated_as_it_is(tmp_path: Path) -> None:
    (tmp_path / "list.yml").write_text("- a\n")
    (tmp_path / "bad.yml").write_text("a: [\n")
    for name in ("none.yml", "list.yml", "bad.yml"):
        assert settings_among([f"@{tmp_path}/{name}"]) == f" -e @{tmp_path}/{name}"
    (tmp_path / "other.yml").write_text("env: {KEY: hunter2}\n")
    assert settings_among([f"@{tmp_path}/other.yml"]) == ""
