"""One name in two regions: the clusters are apart in AWS, and their files in a project must be. No playbook says that
a cluster is gone because it looked in the wrong region."""

from __future__ import annotations

import json
import shlex

from tests.account.fleet import fleet
from tests.account.kit import Account

HERE, ABROAD = "us-east-1", "eu-west-1"


def inventory(account: Account, region: str, folder: str = ".deeplearning") -> str:
    file = account.folder / f"{region}.deeplearning.yml"
    options = {"plugin": "deeplearning.aws.cluster", "cluster": "red", "region": region, "folder": folder}
    file.write_text(json.dumps(options))
    return str(file)


def test_files_of_one_name_in_two_regions_are_not_mixed(account: Account) -> None:
    fleet(account, "red", 1)
    here, abroad = inventory(account, HERE), inventory(account, ABROAD)
    ran = account.play("status.yml", "-i", here)
    assert ran.code == 0 and f"-e destroy=red -i {HERE}.deeplearning.yml" in ran.output, ran.output
    summary = account.folder / ".deeplearning/red.json"
    before = summary.read_text()

    refused = account.play("status.yml", "-i", abroad)
    assert refused.code == 2 and f"has files of the cluster red in {HERE}, which exists" in refused.output
    refused = account.play("status.yml", "-i", here, "-i", abroad)
    assert refused.code == 1 and f"cluster_region is {ABROAD} and was {HERE}" in refused.output

    ran = account.play("status.yml", "-i", inventory(account, ABROAD, f".deeplearning/{ABROAD}"))
    assert ran.code == 0 and (account.folder / f".deeplearning/{ABROAD}/red.json").is_file(), ran.output
    assert summary.read_text() == before


def machines(account: Account) -> int:
    states = [{"Name": "instance-state-name", "Values": ["pending", "running"]}]
    listed = account.client("ec2").describe_instances(Filters=states)["Reservations"]
    return sum(len(reservation["Instances"]) for reservation in listed)


def test_destroy_in_the_wrong_region_fails_and_prints_the_right_command(account: Account) -> None:
    fleet(account, "red", 1)
    account.environment["ANSIBLE_INVENTORY"] = inventory(account, HERE)
    assert account.play("status.yml").code == 0
    abroad = ["-e", f"cluster_region={ABROAD}"]
    right = f"deeplearning.aws.destroy -e destroy=red -e cluster_region={HERE}"
    sentence = f"There is no cluster red in {ABROAD} (account 123456789012), but "

    wrong = account.play("destroy.yml", *abroad, "-e", "destroy=red")
    assert wrong.code == 2 and "is gone" not in wrong.output, wrong.output
    assert f"{sentence}{account.folder}/.deeplearning/red.json records it in {HERE}" in wrong.output, wrong.output
    assert right in wrong.output and machines(account) == 2
    confirmed = account.play("destroy.yml", *abroad, "-e", f"destroy=red@{ABROAD}")
    assert confirmed.code == 0 and machines(account) == 2, confirmed.output
    refused = account.play("playbooks/audit.yml", *abroad)
    assert refused.code == 2 and f"-e audit=red -e cluster_region={HERE}" in refused.output, refused.output

    # The same without the project's files.
    (account.folder / ".deeplearning/red.json").unlink()
    (account.folder / ".deeplearning/red.ssh_config").unlink(missing_ok=True)
    # This machine is busier than an operator's, and the local cloud is one process.
    wrong = account.play("destroy.yml", *abroad, "-e", "destroy=red", "-e", "destroy_scan_seconds=120")
    assert wrong.code == 2 and "is gone" not in wrong.output, wrong.output
    assert f"{sentence}the account has one in {HERE} (" in wrong.output, wrong.output
    assert right in wrong.output and machines(account) == 2

    for _time in range(2):
        removed = account.play("destroy.yml", *shlex.split(right)[1:])
        assert removed.code == 0 and machines(account) == 0, removed.output
        assert f"The cluster red is gone from {HERE} (account 123456789012): " in removed.output
