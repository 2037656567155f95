"""Write the table of prices from AWS's public price list: tools/prices.py [--types FAMILY…] REGION…

It replaces the figures of these regions, for the types that the table has and those of the families. The list of EC2 is
some hundred megabytes for each region, and takes several gigabytes of memory to read. Needs no account.
"""

from __future__ import annotations

import argparse
import json
import sys
import urllib.error
import urllib.request
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "collections"))

from ansible_collections.deeplearning.aws.plugins.module_utils.plan import offers, price_table  # noqa: E402

LIST = "https://pricing.us-east-1.amazonaws.com/offers/v1.0/aws"
FILE = ROOT / "plugins/module_utils/plan/price_table.py"
HEADER = '''\
# Copyright: (c) 2026, the deeplearning.aws contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)

"""AWS's on-demand prices in USD by region and item, each with its date and source. Made by tools/prices.py.

Figures from memory have not been compared with AWS's list since. PRIVATE to the collection: it may change at any time.
"""

from __future__ import annotations

from collections.abc import Mapping

MEMORY = "memory"
Figure = tuple[float, str, str]

PRICES: Mapping[str, Mapping[str, Figure]] = {
'''


def offer(service: str, region: str) -> Mapping[str, Any]:
    """Return a service's current offer file for a region."""
    address = f"{LIST}/{service}/current/{region}/index.json"
    try:
        with urllib.request.urlopen(address, timeout=60) as response:
            content: Mapping[str, Any] = json.load(response)
            return content
    except (urllib.error.URLError, TimeoutError, ValueError) as error:
        raise SystemExit(f"{address} cannot be read: {error}. The table is as it was.") from None


def figures(content: Mapping[str, Any]) -> dict[str, price_table.Figure]:
    """Return the prices of an offer file by item."""
    service, date = content["offerCode"], content["publicationDate"][:10]
    source = f"{service} {content['version']}"
    terms = content["terms"].get("OnDemand", {})
    prices = {}
    for sku, product in content["products"].items():
        item = offers.item_of(service, product["attributes"])
        amount = offers.amount_of(terms.get(sku, {}))
        if item and amount is not None:
            prices[item] = (amount, date, source)
    return prices


def region_table(region: str, families: Sequence[str]) -> dict[str, price_table.Figure]:
    """Return a region's prices. Types that no region of the table has are left out, apart from these families."""
    known = {item for table in price_table.PRICES.values() for item in table}
    known |= {item.replace("machine ", "EMR on ") for item in known}
    starts = tuple(name for family in families for name in (f"machine {family}.", f"EMR on {family}."))
    prices = {item: figure for service in offers.SERVICES for item, figure in figures(offer(service, region)).items()}
    found = {item: figure for item, figure in prices.items() if item in known or item.startswith(starts)}
    general = {item for item in known if not item.startswith(("machine ", "EMR on "))}
    if missing := sorted(general - set(found)):
        raise SystemExit(f"AWS's list for {region} has no {', '.join(missing)}: plan/offers.py names it differently.")
    return found


def written(tables: Mapping[str, Mapping[str, price_table.Figure]]) -> str:
    lines = []
    for region, table in sorted(tables.items()):
        lines.append(f"    {json.dumps(region)}: {{")
        for item, (amount, date, source) in sorted(table.items()):
            origin = "MEMORY" if source == price_table.MEMORY else json.dumps(source)
            lines.append(f"        {json.dumps(item)}: ({amount!r}, {json.dumps(date)}, {origin}),")
        lines.append("    },")
    return HEADER + "\n".join([*lines, "}"]) + "\n"


def main(words: Sequence[str]) -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else "")
    parser.add_argument("regions", nargs="+", metavar="REGION")
    parser.add_argument("--types", nargs="+", default=[], metavar="FAMILY", help="such as p6-b200")
    options = parser.parse_args(words)
    tables = {region: region_table(region, options.types) for region in options.regions}
    FILE.write_text(written({**price_table.PRICES, **tables}), encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1:])
