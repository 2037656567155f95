"""The forking Python that runs modules on localhost in tests: as Ansible's own would, only sooner."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from ansible._internal._templating._jinja_bits import AnsibleEnvironment
from ansible.template import Templar, trust_as_template

from localcloud.testing.booted import wait_for
from tests.forking import ForkingPython
from tests.forking.compiled import keep_templates

MODULE = """
import os, sys, boto3
print(os.getcwd(), os.environ["MARK"], len(sys.argv), boto3.__name__, __name__)
print("and that", file=sys.stderr)
sys.exit({end})
"""


@pytest.fixture(scope="module")
def forking(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ForkingPython]:
    with ForkingPython(tmp_path_factory.mktemp("forking")) as forking:
        yield forking


@pytest.mark.parametrize(
    ("end", "code"), [("0", 0), ("3", 3), ("None", 0), ("'a sentence'", 1), ("1 / 0", 1), ("os.abort()", 250)]
)
def test_a_module_has_its_callers_world_and_its_exit_code_comes_back(
    forking: ForkingPython, tmp_path: Path, end: str, code: int
) -> None:
    done = subprocess.run(
        forking.interpreter,
        cwd=tmp_path,
        env={"MARK": "mine", "PATH": os.defpath},
        input=MODULE.format(end=end),
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == code
    if end != "os.abort()":
        assert done.stdout.split() == [str(tmp_path), "mine", "1", "boto3", "__main__"]
        assert done.stderr.startswith("and that\n") and ("ZeroDivisionError" in done.stderr) == (end == "1 / 0")


def test_what_archives_have_inside_is_compiled_once(forking: ForkingPython, tmp_path: Path) -> None:
    archive = tmp_path / "archive.zip"
    with zipfile.ZipFile(archive, "w") as written:
        written.writestr("inside.py", f"mark = {str(tmp_path)!r}")
    program = f"""
import builtins, sys
compile, compiled = builtins.compile, []
builtins.compile = lambda source, *rest, **more: compiled.append(source) or compile(source, *rest, **more)
sys.path.insert(0, {str(archive)!r})
import inside
print(len(compiled), inside.mark, inside.__file__)
"""
    for times in "10":
        done = subprocess.run(forking.interpreter, input=program, capture_output=True, text=True, check=True)
        assert done.stdout.split() == [times, str(tmp_path), f"{archive}/inside.py"]


def test_templates_are_compiled_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    compiled = []
    compile_anew = AnsibleEnvironment.compile

    def compiling(self: AnsibleEnvironment, source: object) -> object:
        compiled.append(source)
        return compile_anew(self, source)

    monkeypatch.setattr(AnsibleEnvironment, "compile", compiling)
    keep_templates(tmp_path / "templates")
    texts = [r"{{ '\\d' ~ number }}", r"{{ '\\d' ~ number }}", "{{ number + 1 }}"]
    for number in (1, 2):
        variables = {"number": number}
        templar = Templar(variables=variables)
        answers = [
            templar.template(trust_as_template(text), escape_backslashes=escape)
            for text, escape in zip(texts, (True, False, True), strict=True)
        ]
        assert answers == [rf"\\d{number}", rf"\d{number}", number + 1]
    assert compiled == texts


def test_what_is_no_module_runs_in_pythons_own_process(forking: ForkingPython, tmp_path: Path) -> None:
    words = ["-c", "import sys; print(sys.executable); sys.exit(4)"]
    done = subprocess.run([forking.interpreter, *words], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (4, f"{sys.executable}\n")


def test_a_killed_module_does_not_go_on(forking: ForkingPython, tmp_path: Path) -> None:
    program = "import os, signal; print(os.getpid(), flush=True); signal.pause()"
    pipe = subprocess.PIPE
    with subprocess.Popen(forking.interpreter, stdin=pipe, stdout=pipe, text=True) as client:
        assert client.stdin is not None and client.stdout is not None
        client.stdin.write(program)
        client.stdin.close()
        pid = int(client.stdout.readline())
        client.send_signal(signal.SIGKILL)
        wait_for(lambda: not alive(pid), 120, "the module ends")


def test_the_server_ends_with_the_process_that_has_started_it(tmp_path: Path) -> None:
    program = f"""
import os, sys
from pathlib import Path
from tests.forking import ForkingPython
with ForkingPython(Path({str(tmp_path)!r})) as forking:
    print(forking._server.pid, flush=True)
    os._exit(0)
"""
    root = Path(__file__).parents[3]
    done = subprocess.run([sys.executable, "-c", program], cwd=root, capture_output=True, text=True, check=True)
    pid = int(done.stdout)
    wait_for(lambda: not alive(pid), 120, "the server ends")


def test_ansible_takes_it_for_its_own_python(forking: ForkingPython, tmp_path: Path) -> None:
    """Also if a play names `ansible_playbook_python`. Sleeps of modules are short, and their imports are Ansible's."""
    collection = tmp_path / "library"
    collection.mkdir()
    (collection / "tried.py").write_text(
        "import time\n"
        "from ansible.module_utils.basic import AnsibleModule\n"
        "started = time.monotonic()\n"
        "time.sleep(600)\n"
        "AnsibleModule({}).exit_json(seconds=time.monotonic() - started)\n"
    )
    play = tmp_path / "play.yml"
    play.write_text(
        "- hosts: localhost\n"
        "  connection: local\n"
        "  gather_facts: false\n"
        "  vars: {ansible_python_interpreter: '{{ ansible_playbook_python }}'}\n"
        "  tasks: [{tried: , register: took}, {assert: {that: took.seconds < 600 / 2}}]\n"
    )
    environment = {"PATH": os.environ["PATH"], "HOME": str(tmp_path), "LC_ALL": "C.UTF-8", "ANSIBLE_PIPELINING": "1"}
    command = [*forking.ansible_playbook(), play]
    for _once_more in range(2):
        done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout + done.stderr


def alive(pid: int) -> bool:
    """Whether a process works, and is not merely waited for."""
    with contextlib.suppress(OSError):
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    return False
