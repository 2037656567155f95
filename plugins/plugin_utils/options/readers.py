# Copyright: (c) 2026, the deeplearning.aws contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)

"""Readers of single values: from YAML, where a value has a type, or from `-e name=value`, where all are strings.

Each returns the value with its type, or raises InvalidOption with what to do about it.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from ipaddress import IPv4Network, IPv6Network, ip_network
from pathlib import Path, PurePosixPath
from typing import Any, TypeVar

from ansible_collections.deeplearning.aws.plugins.plugin_utils.members.host_keys import is_key

Reader = Callable[[Any], Any]
AReader = TypeVar("AReader", bound=Reader)

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


def shown(value: Any) -> str:
    """Return a value as messages show it."""
    if isinstance(value, str):
        return value if value.strip() == value != "" and "\n" not in value else json.dumps(value)
    if isinstance(value, bool):
        return str(value).lower()
    return json.dumps(value, default=str)


def _of_kind(kind: str, span: str = "") -> Callable[[AReader], AReader]:
    """Decorate a reader with what the documentation says of its values: what they are, and their range."""

    def mark(read: AReader) -> AReader:
        read.kind, read.range = kind, span  # type: ignore[attr-defined]
        return read

    return mark


@_of_kind("text")
def text(value: Any) -> str:
    if isinstance(value, bool | list | dict) or value is None:
        raise InvalidOption("give a text")
    stripped = str(value).strip()
    if not stripped:
        raise InvalidOption("it may not be empty")
    if not stripped.isprintable():
        raise InvalidOption("give a text of one line")
    return stripped


def _matching(kind: str, pattern: str, what: str) -> Reader:
    compiled = re.compile(pattern)

    @_of_kind(kind)
    def read(value: Any) -> str:
        content = text(value)
        if not compiled.fullmatch(content):
            raise InvalidOption(what)
        return content

    return read


_plain_name = _matching(
    "name",
    r"[a-z][a-z0-9]*(-[a-z0-9]+)*",
    "give lower-case letters, digits and single hyphens between them, beginning with a letter (S3 takes no others)",
)


@_of_kind("name")
def name(value: Any) -> str:
    content = str(_plain_name(value))
    reserved = next((start for start in ("xn--", "sthree-", "amzn-s3-demo-", "sg-") if content.startswith(start)), None)
    if reserved:
        raise InvalidOption(f"AWS reserves names that begin with {reserved}, take another")
    return content


region = _matching("region", r"[a-z]{2,4}(-[a-z]+)+-\d{1,2}", "give the name of a region")
role_arn = _matching("ARN", r"arn:aws[a-z-]*:iam::\d{12}:role/[\w+=,.@/-]+", "give the ARN of an IAM role")
policy_arn = _matching("ARN", r"arn:aws[a-z-]*:iam::(\d{12}|aws):policy/[\w+=,.@/-]+", "give the ARN of an IAM policy")
kms_key = _matching(
    "ARN", r"arn:aws[a-z-]*:kms:[a-z0-9-]+:\d{12}:key/[a-zA-Z0-9-]+", "give the ARN of a KMS key, not of an alias"
)
instance_type = _matching("type", r"[a-z][a-z0-9-]*\.[a-z0-9-]+", "give the name of an EC2 instance type")
emr_release = _matching("emr-…", r"emr-\d{1,2}\.\d{1,3}\.\d{1,3}", "give a release of EMR, such as emr-7.14.0")
emr_application = _matching("name", r"[A-Za-z][A-Za-z0-9-]*", "give the name of an application of EMR, such as Spark")
zone = _matching("zone", r"[a-z]{2,4}(-[a-z]+)+-\d{1,2}(-[a-z]{3}-\d)?[a-z]", "give the name of an availability zone")
bastion = _matching("host", r"([a-z_][\w.-]*@)?[A-Za-z0-9][A-Za-z0-9.:-]*", "give a host or user@host, as ssh takes it")
user = _matching("user", r"(?!root$)[a-z_][a-z0-9_-]{0,31}", "give the name of the image's ordinary user")


def resource_id(kind: str) -> Reader:
    """Return a reader of ids such as vpc-0123456789abcdef0; the oldest ones have 8 digits."""
    return _matching(
        f"{kind}-…", rf"{kind}-([0-9a-f]{{8}}|[0-9a-f]{{17}})", f"give an id, {kind}- with 17 (or 8) digits after it"
    )


@_of_kind("true or false")
def boolean(value: Any) -> bool:
    if isinstance(value, bool):
        return value
    content = str(value).strip().lower()
    if content in _TRUE:
        return True
    if content in _FALSE:
        return False
    raise InvalidOption("give true or false")


def integer(least: int, most: int, reason: str = "") -> Reader:
    """Read a whole number. `reason`: why there is a most."""

    @_of_kind("number", f"{least} to {most}")
    def read(value: Any) -> int:
        content = str(value).strip()
        if isinstance(value, bool | list | dict) or not re.fullmatch(r"[+-]?\d+(\.0+)?", content, re.ASCII):
            raise InvalidOption(f"give a whole number from {least} to {most}")
        number = int(content.partition(".")[0])
        if number < least:
            raise InvalidOption(f"give {least} or more")
        if number > most:
            raise InvalidOption(f"give {most} or less{reason and f', because {reason}'}")
        return number

    return read


def number(least: int, most: int) -> Reader:
    @_of_kind("number", f"{least} to {most}, with decimals if needed")
    def read(value: Any) -> float:
        content = str(value).strip()
        if isinstance(value, bool | list | dict) or not re.fullmatch(r"[+-]?\d+(\.\d+)?", content, re.ASCII):
            raise InvalidOption(f"give a number from {least} to {most}")
        if not least <= float(content) <= most:
            raise InvalidOption(f"give {least} to {most}")
        return float(content)

    return read


def or_empty(inner: Reader) -> Reader:
    """A limit that may be set to nothing, although its default is something."""

    @_of_kind(str(getattr(inner, "kind", "text")), f"{getattr(inner, 'range', '')}, or empty")
    def read(value: Any) -> Any:
        return None if value is None or (isinstance(value, str) and not value.strip()) else inner(value)

    return read


def or_never(inner: Reader) -> Reader:
    """A time after which something ends."""

    @_of_kind("number", f"{getattr(inner, 'range', '')}, or never")
    def read(value: Any) -> Any:
        return inner(0 if isinstance(value, str) and value.strip().lower() == "never" else value)

    return read


def choice(*options: str) -> Reader:
    names = [option for option in options if option]

    @_of_kind("choice", ", ".join(names))
    def read(value: Any) -> str:
        content = str(value).strip().lower()
        if "true" in options and content in _TRUE + _FALSE:
            content = str(content in _TRUE).lower()
        if isinstance(value, list | dict) or content not in options:
            raise InvalidOption(f"give {' or '.join(filter(None, (', '.join(names[:-1]), names[-1])))}")
        return content

    return read


def _items(value: Any) -> list[Any]:
    """Return the items of a list, or of a string that is one: in JSON, or separated by commas."""
    if isinstance(value, list | tuple):
        return list(value)
    if not isinstance(value, str):
        raise InvalidOption("give a list")
    stripped = value.strip()
    if stripped.startswith("["):
        try:
            return list(json.loads(stripped))
        except ValueError:
            raise InvalidOption("it is no list in JSON (quotes may have been lost on the way), give a list") from None
    return [item.strip() for item in stripped.split(",") if item.strip()]


def list_of(read: Reader) -> Reader:
    @_of_kind(f"list of {getattr(read, 'kind', 'text')}")
    def read_all(value: Any) -> list[Any]:
        return list(dict.fromkeys(_each(item, read) for item in _items(value)))

    return read_all


def _each(item: Any, read: Reader) -> Any:
    try:
        return read(item)
    except InvalidOption as invalid:
        raise InvalidOption(f"of {shown(item)}, {invalid}") from None


@_of_kind("network")
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


@_of_kind("network", "/16 to /27")
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
    if network.is_loopback or network.is_link_local or network.is_multicast or network.is_reserved:
        raise InvalidOption("these addresses have a meaning of their own, give others")
    if network.network_address in IPv4Network("0.0.0.0/8"):
        raise InvalidOption("these addresses have a meaning of their own, give others")
    return content


@_of_kind("family or ami-…")
def image(value: Any) -> str:
    content = text(value)
    if content.startswith("ami-"):
        if not re.fullmatch(r"ami-([0-9a-f]{8}|[0-9a-f]{17})", content):
            raise InvalidOption("give an id, ami- with 17 (or 8) digits after it")
        return content
    match = _FAMILY.fullmatch(content)
    if not match:
        raise InvalidOption("give the id of an AMI or a family of AWS's Deep Learning AMIs")
    return match[1]


@_of_kind("path")
def path(value: Any) -> str:
    return str(Path(text(value)).expanduser().absolute())


@_of_kind("path")
def mount_point(value: Any) -> str:
    content = PurePosixPath("/", text(value).lstrip("/"))
    if not re.fullmatch(r"/[\w./-]*", str(content), re.ASCII) or ".." in content.parts:
        raise InvalidOption("give a folder of letters, digits, points and hyphens")
    if str(content) in _SYSTEM or _PLACES.match(f"{content}/"):
        raise InvalidOption("the system uses this folder, give another one")
    return str(content)


@_of_kind("bucket/prefix")
def bucket(value: Any) -> str:
    content = text(value).removeprefix("s3://")
    owner, prefix = (content.split("/", 1) + [""])[:2]
    if not _BUCKET.fullmatch(owner) or ".." in owner:
        raise InvalidOption("give the name of a bucket, or bucket/prefix")
    if not _PREFIX.fullmatch(prefix):
        raise InvalidOption("the prefix may hold no wildcards and no other special characters, give a plain one")
    return f"{owner}/{prefix.strip('/')}".rstrip("/")


@_of_kind("map")
def tags(value: Any) -> dict[str, str]:
    if isinstance(value, str):
        try:
            value = json.loads(value)
        except ValueError:
            raise InvalidOption("it is no map in JSON (quotes may have been lost on the way), give a map") from None
    if not isinstance(value, Mapping):
        raise InvalidOption("give a map of names to values")
    result = {}
    for key, content in value.items():
        if isinstance(content, list | dict) or content is None:
            raise InvalidOption(f"of {key}, give a text")
        result[str(key)] = str(content).lower() if isinstance(content, bool) else str(content)
        if re.match(r"(aws:|deeplearning:|Name$)", str(key), re.IGNORECASE):
            raise InvalidOption(f"of {key}, take another name: this one is AWS's or the cluster's own")
        if not re.fullmatch(r"[\w .:/=+@-]{1,128}", str(key)) or not re.fullmatch(
            r"[\w .:/=+@-]{0,256}", result[str(key)]
        ):
            raise InvalidOption(
                f"of {key}, give at most 128 letters, digits, spaces and + - = . _ : / @, its value 256"
            )
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
