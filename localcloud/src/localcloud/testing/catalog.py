"""What EC2 and the Price List offer in the local cloud."""

from localcloud.api.ec2.images import API_ONLY as API_ONLY
from localcloud.api.ec2.images import BASE as BASE
from localcloud.api.ec2.images import Image as Image
from localcloud.api.ec2.instance_types import types as instance_types
from localcloud.api.ec2.run_network import check_cards as check_network_cards
from localcloud.api.pricing import DATE as PRICES_DATE

__all__ = ["API_ONLY", "BASE", "PRICES_DATE", "Image", "check_network_cards", "instance_types"]
