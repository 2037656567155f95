"""Answer the launch lifecycle hook: continue, abandon, or keep the machine's place."""

from __future__ import annotations

import html
import json
import re
import time
from collections.abc import Sequence
from urllib.parse import quote, urlencode

from deeplearning.boot.first_stage import PASSING, Machine, log, timestamp
from deeplearning.contract.boot import ATTEMPTS, FAILURE_SECONDS
from deeplearning.contract.report import FAILED, MAX_BYTES, PREFIX

HOOK_ACTIVE_SECONDS = 60
"""Auto Scaling may learn of a machine after it has booted. After so long there is no hook."""
CALL_SECONDS = 120


def complete(machine: Machine, result: str) -> None:
    """Answer the hook, if there is one."""
    if not machine.parameters["group"]:
        return
    end = time.monotonic() + HOOK_ACTIVE_SECONDS
    while not machine.lifecycle("CompleteLifecycleAction", CALL_SECONDS, LifecycleActionResult=result):
        if time.monotonic() >= end:
            log(f"no lifecycle action waits for {result}")
            return
        time.sleep(2)  # between two calls


def fail(machine: Machine, step: str, lines: Sequence[str]) -> None:
    """Report the failure and abandon the machine. After several failures keep it, as another one would fail too."""
    log("\n".join([f"failed: {step}", *lines]))
    try:
        machine.report(FAILED, step, lines, CALL_SECONDS)
        failures = count_failures(machine)
    except PASSING as error:
        # Without the number, machines could be launched and abandoned for ever.
        log(f"the failures of other machines cannot be counted: {error}")
        failures = ATTEMPTS + 1
    if failures > ATTEMPTS:
        machine.hold()
    else:
        complete(machine, "ABANDON")


def count_failures(machine: Machine) -> int:
    """Return how many machines of this role have failed lately, with this one; at most one more than the limit."""
    oldest = timestamp(machine.now() - FAILURE_SECONDS)
    count = 0
    for key in recent_keys(machine, f"{PREFIX}{machine.parameters['role_id']}:", oldest):
        count += is_failed(machine.call("s3", machine.object(key), CALL_SECONDS, lambda body: body.read(MAX_BYTES)))
        if count > ATTEMPTS:
            break
    return count


def recent_keys(machine: Machine, prefix: str, oldest: str) -> list[str]:
    """Return the keys of the objects that were written since then, the newest first."""
    query, objects = {"list-type": "2", "prefix": prefix}, []
    while True:
        request = machine.object("")
        request.full_url += f"?{urlencode(sorted(query.items()), quote_via=quote)}"
        page = machine.call("s3", request, CALL_SECONDS, lambda body: str(body.read().decode()))
        objects += [(_value(item, "LastModified"), _value(item, "Key")) for item in page.split("<Contents>")[1:]]
        query["continuation-token"] = _value(page, "NextContinuationToken")
        if not query["continuation-token"]:
            return [key for written, key in sorted(objects, reverse=True) if written >= oldest]


def _value(xml: str, tag: str) -> str:
    match = re.search(f"<{tag}>(.*?)</{tag}>", xml, re.S)
    return html.unescape(match[1]) if match else ""


def is_failed(body: bytes) -> bool:
    """Return whether a machine reports that it has failed. Any machine may have written anything there."""
    try:
        report = json.loads(body)
    except (ValueError, RecursionError):
        return False
    return isinstance(report, dict) and report.get("state") == FAILED
