# Copyright: (c) 2026, the deeplearning.aws contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)

"""The bucket of data sets of an account and region. It belongs to no cluster, and is deleted by its name alone."""

from __future__ import annotations

from ...module_utils.aws.client import Aws, AwsError
from ...module_utils.contract.errors import UserError
from ...module_utils.contract.names import Names
from ...module_utils.plan import offers
from ..resources.resources import Resource


def find(aws: Aws) -> Resource | None:
    """Return the bucket, if it exists and belongs to this account."""
    name = Names("", aws.account, aws.region).data_bucket
    try:
        aws.call("s3", "head_bucket", Bucket=name, ExpectedBucketOwner=aws.account)
    except AwsError as problem:
        if problem.denied or problem.code == "404":
            return None
        raise
    return Resource("bucket", name, name, facts={"account": aws.account})


def check_name(aws: Aws, name: str) -> None:
    """Raise UserError unless this is the bucket's name."""
    own = Names("", aws.account, aws.region).data_bucket
    if name != own:
        raise UserError(
            f"destroy_data is {name}, and the bucket of data sets of this account and region is {own}: nothing was "
            f"removed. Example: -e destroy_data={own}"
        )


def describe(aws: Aws) -> list[str]:
    """Return a line about what the bucket has and costs, if it exists."""
    bucket = find(aws)
    if not bucket:
        return []
    objects = aws.pages("s3", "list_objects_v2", "Contents", Bucket=bucket.id, ExpectedBucketOwner=aws.account)
    sets = {item["Key"].split("/")[0] for item in objects}
    size = sum(item["Size"] for item in objects) / 2**30
    price = offers.current_prices(aws, []).get(offers.BUCKET)
    cost = f", which cost about {size * price.amount:.2f} USD a month" if price else ""
    return [
        f"The {bucket.describe()} has {len(sets)} data set{'' if len(sets) == 1 else 's'}, {size:.1f} GiB"
        f"{cost}. It belongs to no cluster. An administrator removes it: "
        f"ansible-playbook deeplearning.aws.destroy -e destroy_data={bucket.id}"
    ]
