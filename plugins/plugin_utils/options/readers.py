# Copyright: (c) 2026, the deeplearning.aws contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)

"""Forms of single values: from YAML, where a value has a type, or from `-e name=value`, where all are strings.

Each returns the value with its type, or raises InvalidOption with what to do about it. Where files have such values as
well, the check is that of `contract/schema.py`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from ipaddress import IPv4Network, IPv6Network, ip_network
from pathlib import Path, PurePosixPath
from typing import Any, Generic, TypeVar

from ...module_utils.contract import schema
from ...module_utils.contract.names import CLUSTER_NAME, RESERVED_NAMES
from ..members.host_keys import is_key

Value = TypeVar("Value")

_TRUE = ("true", "yes", "on", "1")
_FALSE = ("false", "no", "off", "0")
_SYSTEM = frozenset(
    f"/{place}"
    for place in (
        *("", "bin", "boot", "dev", "etc", "home", "lib", "lib64", "media", "mnt", "opt", "opt/deeplearning", "proc"),
        *("root", "run", "sbin", "srv", "sys", "tmp", "usr", "var", "var/lib"),
    )
)
_PLACES = re.compile(r"/(bin|boot|dev|etc|lib|lib64|proc|run|sbin|sys|usr|opt/deeplearning)/")
_BUCKET = re.compile(r"[a-z0-9][a-z0-9.-]{1,61}[a-z0-9]")
_PREFIX = re.compile(r"[\w!.()'/ =+@:,-]*", re.ASCII)
_FAMILY = re.compile(r"(?:/aws/service/deeplearning/ami/x86_64/)?([a-z0-9][a-z0-9.-]*)(?:/latest/ami-id)?/?")
_IMPORTABLE = ("ssh-rsa", "ssh-ed25519")


class InvalidOption(ValueError):
    """What to do instead, as the end of a sentence without its full stop."""


@dataclass(frozen=True)
class Form(Generic[Value]):
    """How a value is read, and what the documentation says of such values."""

    read: Callable[[Any], Value]
    """Returns the value with its type, or raises InvalidOption."""
    kind: str = "text"
    range: str = ""
    examples: Sequence[Any] = ()
    """An option has the first one that is not its default."""
    default: Any = None
    """What an option has that is not set, or set to nothing. If that is not empty, it cannot be set to nothing."""

    def __call__(self, value: Any) -> Value:
        return self.read(value)

    def such_as(self, example: Any) -> Form[Value]:
        """Return the form with another example."""
        return replace(self, examples=(example,))

    def by_default(self, value: Any) -> Form[Value]:
        return replace(self, default=value)


def form(
    kind: str, *examples: Any, span: str = "", default: Any = None
) -> Callable[[Callable[[Any], Value]], Form[Value]]:
    """Decorate a function that reads a value."""
    return lambda read: Form(read, kind, span, examples, default)


def is_empty(value: Any) -> bool:
    return value is None or (isinstance(value, str) and not value.strip())


def shown(value: Any) -> str:
    """Return a value as messages show it."""
    if isinstance(value, str):
        return value if value.strip() == value != "" and "\n" not in value else json.dumps(value)
    if isinstance(value, bool):
        return str(value).lower()
    return json.dumps(value, default=str)


@form("text", default="")
def text(value: Any) -> str:
    if isinstance(value, bool | list | dict) or value is None:
        raise InvalidOption("give a text")
    stripped = str(value).strip()
    if not stripped:
        raise InvalidOption("it may not be empty")
    if not stripped.isprintable():
        raise InvalidOption("give a text of one line")
    return stripped


def checked(
    check: schema.Check, kind: str, *examples: Any, prepare: Callable[[Any], Any] = text, why: str = "", **more: Any
) -> Form[Any]:
    """Return the form of values that a check of files accepts. `prepare` returns such a value from a text.

    `why`: the reason for a limit.
    """

    @form(kind, *examples, **more)
    def read(value: Any) -> Any:
        try:
            return check(prepare(value))
        except schema.InvalidValue as invalid:
            raise InvalidOption(f"give {invalid}{why and f', because {why}'}") from None

    return read


def matching(kind: str, pattern: str, expected: str, *examples: str) -> Form[str]:
    return checked(schema.matching(pattern, expected), kind, *examples, default="")


_plain_name = matching(
    "name",
    CLUSTER_NAME,
    "lower-case letters, digits and single hyphens between them, beginning with a letter (S3 takes no others)",
)


@form("name", "red")
def name(value: Any) -> str:
    content = _plain_name(value)
    for reserved in RESERVED_NAMES:
        if content.startswith(reserved):
            raise InvalidOption(f"AWS reserves names that begin with {reserved}, take another")
    return content


region = matching("region", r"[a-z]{2,4}(-[a-z]+)+-\d{1,2}", "the name of a region", "eu-west-1")
role_arn = matching("ARN", r"arn:aws[a-z-]*:iam::\d{12}:role/[\w+=,.@/-]+", "the ARN of an IAM role")
policy_arn = matching("ARN", r"arn:aws[a-z-]*:iam::(\d{12}|aws):policy/[\w+=,.@/-]+", "the ARN of an IAM policy")
kms_key = matching(
    "ARN", r"arn:aws[a-z-]*:kms:[a-z0-9-]+:\d{12}:key/[a-zA-Z0-9-]+", "the ARN of a KMS key, not of an alias"
)
instance_type = checked(schema.instance_type, "type", "g5.12xlarge", default="")
emr_release = matching("emr-…", r"emr-\d{1,2}\.\d{1,3}\.\d{1,3}", "a release of EMR, such as emr-7.14.0", "emr-7.12.0")
emr_application = matching("name", r"[A-Za-z][A-Za-z0-9-]*", "the name of an application of EMR, such as Spark")
zone = matching("zone", r"[a-z]{2,4}(-[a-z]+)+-\d{1,2}(-[a-z]{3}-\d)?[a-z]", "the name of an availability zone")
bastion = matching("host", r"([a-z_][\w.-]*@)?[A-Za-z0-9][A-Za-z0-9.:-]*", "a host or user@host, as ssh takes it")
user = matching("user", r"(?!root$)[a-z_][a-z0-9_-]{0,31}", "the name of the image's ordinary user", "ubuntu")


def resource_id(kind: str) -> Form[str]:
    """Return the form of ids such as vpc-0123456789abcdef0; the oldest ones have 8 digits."""
    pattern, expected = rf"{kind}-([0-9a-f]{{8}}|[0-9a-f]{{17}})", f"an id, {kind}- with 17 (or 8) digits after it"
    return matching(f"{kind}-…", pattern, expected, f"{kind}-0123456789abcdef0")


def one_of_ids(*kinds: str) -> Form[str]:
    """Return the form of ids of several kinds, such as nat-0123456789abcdef0 and eipalloc-0123456789abcdef0."""
    prefixes = "|".join(kinds)
    pattern = rf"({prefixes})-([0-9a-f]{{8}}|[0-9a-f]{{17}})"
    expected = f"an id, {' or '.join(f'{kind}-' for kind in kinds)} with 17 (or 8) digits after it"
    return matching("id", pattern, expected, f"{kinds[0]}-0123456789abcdef0")


def _truth(value: Any) -> Any:
    content = str(value).strip().lower()
    return content in _TRUE if content in _TRUE + _FALSE else value


def _whole(value: Any) -> Any:
    content = str(value).strip()
    is_whole = not isinstance(value, bool) and re.fullmatch(r"[+-]?\d+(\.0+)?", content, re.ASCII)
    return int(content.partition(".")[0]) if is_whole else value


def _decimal(value: Any) -> Any:
    content = str(value).strip()
    is_number = not isinstance(value, bool) and re.fullmatch(r"[+-]?\d+(\.\d+)?", content, re.ASCII)
    return float(content) if is_number else value


boolean = checked(schema.boolean, "true or false", True, False, prepare=_truth)
flag = boolean.by_default(False)


def integer(least: int, most: int, why: str = "") -> Form[Any]:
    return checked(schema.between(least, most), "number", prepare=_whole, why=why, span=f"{least} to {most}")


def number(least: int, most: int) -> Form[Any]:
    span = f"{least} to {most}, with decimals if needed"
    return checked(schema.number(least, most), "number", prepare=_decimal, span=span)


def or_empty(inner: Form[Any]) -> Form[Any]:
    """A limit that may be set to nothing, although its default is something."""

    def read(value: Any) -> Any:
        return None if is_empty(value) else inner(value)

    return replace(inner, read=read, range=f"{inner.range}, or empty")


def or_never(inner: Form[Any]) -> Form[Any]:
    """A time after which something ends."""

    def read(value: Any) -> Any:
        return inner(0 if isinstance(value, str) and value.strip().lower() == "never" else value)

    return replace(inner, read=read, range=f"{inner.range}, or never")


def choice(*options: str) -> Form[Any]:
    def prepare(value: Any) -> str:
        content = _truth(value) if "true" in options else value
        return str(content).strip().lower()

    return checked(schema.one_of(*options), "choice", *options, prepare=prepare, span=", ".join(options))


def mode(default: str, *others: str) -> Form[str]:
    """Return the form of a choice that has a value in any case."""
    return choice(default, *others).by_default(default)


automatic = mode("auto", "true", "false").such_as(False)


def _from_json(value: str, kind: str) -> Any:
    try:
        return json.loads(value)
    except ValueError:
        raise InvalidOption(f"it is no {kind} in JSON (quotes may have been lost on the way), give a {kind}") from None


def _items(value: Any) -> list[Any]:
    """Return the items of a list, or of a string that is one: in JSON, or separated by commas."""
    if isinstance(value, list | tuple):
        return list(value)
    if not isinstance(value, str):
        raise InvalidOption("give a list")
    if value.strip().startswith("["):
        return list(_from_json(value, "list"))
    return [item.strip() for item in value.split(",") if item.strip()]


def list_of(inner: Form[Any]) -> Form[Any]:
    @form(f"list of {inner.kind}", *([example] for example in inner.examples), default=[])
    def read(value: Any) -> list[Any]:
        items = []
        for item in _items(value):
            try:
                items.append(inner(item))
            except InvalidOption as invalid:
                raise InvalidOption(f"of {shown(item)}, {invalid}") from None
        return list(dict.fromkeys(items))

    return read


@form("network", "198.51.100.1/32")
def _network(value: Any) -> str:
    content = text(value)
    try:
        network = ip_network(content, strict=False)
    except ValueError:
        raise InvalidOption("give an address or a network such as 198.51.100.0/24") from None
    if isinstance(network, IPv6Network):
        raise InvalidOption("give IPv4, the cluster's network has no IPv6")
    if "/" in content and str(network) != content:
        host = content.partition("/")[0]
        raise InvalidOption(f"write {network} for the network or {host}/32 for the one address")
    return str(network)


networks = list_of(_network)


@form("network", "10.20.0.0/16", span="/16 to /27")
def vpc_cidr(value: Any) -> str:
    content = text(value)
    try:
        network = IPv4Network(content, strict=False)
    except ValueError:
        raise InvalidOption("give an IPv4 network") from None
    if "/" not in content or str(network) != content:
        raise InvalidOption(f"write it as a network, with zeros after its prefix, such as {network.network_address}/16")
    if network.prefixlen < 16:
        raise InvalidOption("a VPC has a prefix from /16 to /28, give a smaller network")
    if network.prefixlen > 27:
        raise InvalidOption("two subnets of at least /28 must fit in, give /27 or a larger network")
    reserved = network.is_loopback or network.is_link_local or network.is_multicast or network.is_reserved
    if reserved or network.network_address in IPv4Network("0.0.0.0/8"):
        raise InvalidOption("these addresses have a meaning of their own, give others")
    return content


_image_id = resource_id("ami")


@form("family or ami-…", "ami-0123456789abcdef0")
def image(value: Any) -> str:
    content = text(value)
    if content.startswith("ami-"):
        return _image_id(content)
    match = _FAMILY.fullmatch(content)
    if not match:
        raise InvalidOption("give the id of an AMI or a family of AWS's Deep Learning AMIs")
    return match[1]


@form("path", default="")
def path(value: Any) -> str:
    return str(Path(text(value)).expanduser().absolute())


@form("path", "/efs")
def mount_point(value: Any) -> str:
    content = PurePosixPath("/", text(value).lstrip("/"))
    if not re.fullmatch(r"/[\w./-]*", str(content), re.ASCII) or ".." in content.parts:
        raise InvalidOption("give a folder of letters, digits, points and hyphens")
    if str(content) in _SYSTEM or _PLACES.match(f"{content}/"):
        raise InvalidOption("the system uses this folder, give another one")
    return str(content)


@form("bucket/prefix", default="")
def bucket(value: Any) -> str:
    owner, _slash, prefix = text(value).removeprefix("s3://").partition("/")
    if not _BUCKET.fullmatch(owner) or ".." in owner:
        raise InvalidOption("give the name of a bucket, or bucket/prefix")
    if not _PREFIX.fullmatch(prefix):
        raise InvalidOption("the prefix may hold no wildcards and no other special characters, give a plain one")
    return f"{owner}/{prefix.strip('/')}".rstrip("/")


@form("map", {"team": "vision"}, default={})
def tags(value: Any) -> dict[str, str]:
    if isinstance(value, str):
        value = _from_json(value, "map")
    if not isinstance(value, Mapping):
        raise InvalidOption("give a map of names to values")
    result = {}
    for key, content in value.items():
        if isinstance(content, list | dict) or content is None:
            raise InvalidOption(f"of {key}, give a text")
        tag, words = str(key), str(content).lower() if isinstance(content, bool) else str(content)
        if re.match(r"(aws:|deeplearning:|Name$)", tag, re.IGNORECASE):
            raise InvalidOption(f"of {key}, take another name: this one is AWS's or the cluster's own")
        if not (re.fullmatch(r"[\w .:/=+@-]{1,128}", tag) and re.fullmatch(r"[\w .:/=+@-]{0,256}", words)):
            raise InvalidOption(
                f"of {key}, give at most 128 letters, digits, spaces and + - = . _ : / @, its value 256"
            )
        result[tag] = words
    if len(result) > 40:
        raise InvalidOption("give 40 at most, AWS allows 50 on a resource and the cluster needs some")
    return result


def _content(file: str) -> str:
    try:
        return Path(file).read_text(encoding="utf-8", errors="replace")
    except FileNotFoundError:
        raise InvalidOption("there is no such file") from None
    except OSError as error:
        raise InvalidOption(f"it cannot be read ({error.strerror})") from None


def public_key(file: str) -> str:
    """Return the content of a file with a public key that EC2 accepts."""
    content = _content(file)
    if "PRIVATE KEY" in content:
        raise InvalidOption("that is a private key, which must stay secret: give the public one, usually named .pub")
    lines = [line.strip() for line in content.splitlines() if line.strip() and not line.startswith("#")]
    words = lines[0].split() if len(lines) == 1 else []
    if len(words) < 2 or not is_key(words[0], words[1]):
        raise InvalidOption("that is no public key of one line, as ssh-keygen writes it")
    if words[0] not in _IMPORTABLE:
        raise InvalidOption(
            f"EC2 takes RSA and Ed25519 keys only, and that is {words[0]}: make one with ssh-keygen -t ed25519"
        )
    return lines[0]


def private_key(file: str) -> str:
    """Return the path of a file with a private key. The key itself is not read into the settings."""
    if "PRIVATE KEY" not in _content(file) and not _content(file).startswith("PuTTY"):
        raise InvalidOption("that is no private key")
    return file
