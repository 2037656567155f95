"""One name in two regions: the clusters are apart in AWS, and their files in a project must be."""

from __future__ import annotations

import json

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
