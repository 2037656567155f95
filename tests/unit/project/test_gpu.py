"""`make gpu` counts right, says so where there is no GPU, and its steps fail when what they look at is wrong."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from deeplearning.contract import open_mpi
from deeplearning.gpus import kernel_log, nvml
from deeplearning.gpus.reading import Gpu, Reading

from tests import debian
from tests.gpu import drills, facts, launcher, nccl, run, session
from tests.gpu.launch import Launch
from tests.gpu.session import SCRIPTS, Session
from tests.steps import Failed

ROOT = Path(__file__).resolve().parents[3]
XID = "NVRM: Xid (PCI:0000:53:00): {}, pid=4242, name=python3, "
ONE_GPU = Reading(driver="595.91.07", gpus=(Gpu(index=0, bus_id="00000000:53:00.0"),))


@pytest.fixture
def here(tmp_path: Path) -> Session:
    """This interpreter, which has no PyTorch."""
    return Session(tmp_path, sys.executable, on_processor=True)


@pytest.fixture
def on_gpu(tmp_path: Path) -> Session:
    return Session(tmp_path, sys.executable)


@pytest.fixture
def three_steps(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One step that passes and two that fail. What the command writes is in the test's folder."""

    def fails(_session: Session) -> str:
        raise Failed("the sum over 2 ranks is wrong")

    steps = {"nccl": lambda _session: "right", "ranks": fails, "launcher": lambda _session: str(1 // 0)}
    monkeypatch.setattr(run, "STEPS", steps)
    monkeypatch.setattr(run, "FOLDER", tmp_path)
    monkeypatch.setattr(run, "PAGE", tmp_path / "gpu.md")
    monkeypatch.setattr(run, "interpreter", lambda *_words: sys.executable)


def nvidia_smi(folder: Path, monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    """Put a program into PATH that prints this."""
    program = folder / "bin/nvidia-smi"
    program.parent.mkdir()
    program.write_text(f"#!/bin/sh\necho '{text}'\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{program.parent}:/bin:/usr/bin")


def test_without_a_gpu_it_is_not_run_and_that_is_no_failure() -> None:
    page = ROOT / "bench/results/gpu.md"
    before = page.read_bytes() if page.exists() else None
    words = ["make", "-s", "gpu", f"python={sys.executable}"]
    path = os.pathsep.join(folder for folder in os.get_exec_path() if not Path(folder, "nvidia-smi").exists())
    done = subprocess.run(
        words, cwd=ROOT, env={**os.environ, "PATH": path}, capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("not run: no GPU: nvidia-smi is not installed. On the processor: ")
    assert (page.read_bytes() if page.exists() else None) == before


@pytest.mark.parametrize("loaded", [False, True])
def test_a_driver_without_gpus_is_named(loaded: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    nvidia_smi(tmp_path, monkeypatch, "No devices were found")
    driver = tmp_path / "version"
    if loaded:
        driver.write_text("NVRM version: …")
    devices, reason = session.gpus(driver)
    assert devices == [] and "No devices were found" in reason
    assert ("its driver is loaded" in reason) is loaded


@pytest.mark.usefixtures("three_steps")
def test_steps_are_counted_and_one_that_fails_does_not_hide_the_next(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run.main(["--processor"]) == 1
    *lines, last = capsys.readouterr().out.splitlines()
    assert [line.split()[:2] for line in lines] == [["nccl", "ok"], ["ranks", "FAILED"], ["launcher", "FAILED"]]
    assert lines[1].endswith("the sum over 2 ranks is wrong") and "ZeroDivisionError" in lines[2]
    assert "division" in (tmp_path / "launcher.log").read_text()
    assert last == "1 passed, 2 failed"
    record = json.loads((tmp_path / "gpu.json").read_text())
    assert [step["ok"] for step in record["steps"]] == [True, False, False] and record["gpus"] == []
    assert not (tmp_path / "gpu.md").exists()


@pytest.mark.usefixtures("three_steps")
def test_named_steps_alone_are_run(capsys: pytest.CaptureFixture[str]) -> None:
    assert run.main(["--processor", "nccl"]) == 0
    assert capsys.readouterr().out.splitlines()[1:] == ["1 passed, 0 failed"]


def test_an_unknown_step_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert run.main(["horovod", "nccl"]) == 2
    assert capsys.readouterr().err.startswith("horovod: no such step. There are: facts, probe, nccl, ranks, ")


@pytest.mark.usefixtures("three_steps")
def test_all_steps_on_a_gpu_leave_a_page_and_some_leave_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    nvidia_smi(tmp_path, monkeypatch, "GPU 0: NVIDIA H100 80GB HBM3 (UUID: GPU-0)")
    assert run.main(["ranks"]) == 1
    assert not (tmp_path / "gpu.md").exists()
    assert run.main([]) == 1
    page = (tmp_path / "gpu.md").read_text()
    assert "| nccl | ok | " in page and "| ranks | FAILED | " in page and "1 passed, 2 failed." in page


def test_an_interpreter_without_torch_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(session.NoPython, match="has no torch"):
        session.interpreter(sys.executable, True)
    monkeypatch.setattr(session, "NODE_PYTHON", tmp_path / "python")
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(session.NoPython, match="name one. Example: --python "):
        session.interpreter("", False)
    (tmp_path / "python").write_text("#!/bin/sh\nexit 0\n")
    (tmp_path / "python").chmod(0o755)
    assert session.interpreter("", False) == str(tmp_path / "python")


def test_nodes_read_what_nvidia_smi_prints(here: Session) -> None:
    assert facts.compare(here) == "20 fields of 2 GPUs are as nvidia-smi has them, driver 595.91.07"


@pytest.mark.parametrize(
    ("changed", "named"),
    [
        ({"driver": "580.0"}, "driver is '580.0', and by nvidia-smi '595.91.07'"),
        ({"count": 1}, "number of GPUs is 1, and by nvidia-smi 2"),
        ({"gpu0_bus_id": "1"}, "GPU 0: bus id is '1'"),
        ({"memory_used": 0}, "GPU 0: used memory is 0.0"),
        ({"ecc_uncorrected": 0}, "GPU 0: uncorrected errors is 0, and by nvidia-smi 1.0"),
        ({"remapped_rows": "2 1 0 0"}, "GPU 1: pending row is False, and by nvidia-smi True"),
        ({"gpu0_processes": None}, "GPU 0: processes is set(), and by nvidia-smi {4141}"),
        ({"mig": 1}, "GPU 0: MIG is True, and by nvidia-smi False"),
    ],
)
def test_a_field_that_differs_is_named(
    changed: dict[str, object], named: str, here: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(facts, "IMITATED", {**facts.IMITATED, **changed})
    with pytest.raises(Failed) as failed:
        facts.compare(here)
    assert named in str(failed.value)


def test_use_and_memory_may_differ_by_five_percent(here: Session, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(facts, "IMITATED", {**facts.IMITATED, "busy": 33, "memory_used": 1070 * 2**20})
    assert facts.compare(here)


def test_a_library_without_gpus_is_a_failure(here: Session, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(facts, "IMITATED", {**facts.IMITATED, "count": None})
    with pytest.raises(Failed, match="NVML: "):
        facts.compare(here)


@pytest.mark.parametrize("text", ["", "<a>"])
def test_an_answer_that_is_no_xml_is_a_failure(
    text: str, on_gpu: Session, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    nvidia_smi(tmp_path, monkeypatch, text)
    with pytest.raises(Failed, match="answers no XML"):
        facts.answer(on_gpu)


PRINTS = """
import json, os, sys
print("NCCL INFO Using network Socket")
print(json.dumps({name: os.environ[name] for name in ("RANK", "WORLD_SIZE", "DEEPLEARNING_DISTRIBUTION")}))
print("NCCL INFO comm 0x1 rank 0 - Destroy COMPLETE")
if len(sys.argv) > 1:
    sys.exit(int(sys.argv[1]))
"""


@pytest.fixture
def script(tmp_path: Path) -> Path:
    path = tmp_path / "prints.py"
    path.write_text(PRINTS)
    return path


def test_a_launch_starts_each_rank_as_a_run_does(here: Session, script: Path) -> None:
    with Launch(here, "launch", script, ranks=2) as launch:
        launch.wait(30)
        assert [launch.result(rank)["RANK"] for rank in (0, 1)] == ["0", "1"]
        assert launch.result(1)["WORLD_SIZE"] == "2" and launch.result(0)["DEEPLEARNING_DISTRIBUTION"] == "ddp"


def test_a_rank_that_fails_ends_its_step_with_its_last_line(here: Session, script: Path) -> None:
    with (
        Launch(here, "launch", script, [7]) as launch,
        pytest.raises(Failed, match=r"rank 0 ended with 7: NCCL INFO comm"),
    ):
        launch.wait(30)


def test_a_rank_that_takes_too_long_is_ended(here: Session, script: Path) -> None:
    script.write_text("import signal\nprint('here')\nsignal.pause()\n")
    with Launch(here, "launch", script) as launch:
        launch.until(lambda: bool(launch.lines[0]), 30, "to start")
        with pytest.raises(Failed, match=r'prints.py needs more than 0 s to end: {"0": "here"}'):
            launch.wait(0)
        pid = launch.pid(0)
    assert not is_alive(pid)


STARTS_OTHERS = """
import subprocess, sys, signal
signal.signal(signal.SIGTERM, signal.SIG_IGN)
print(subprocess.Popen(["sleep", "600"], start_new_session=True).pid, flush=True)
signal.pause()
"""


def test_ranks_end_with_all_that_they_started(here: Session, script: Path) -> None:
    script.write_text(STARTS_OTHERS)
    with Launch(here, "launch", script, ranks=2) as launch:
        launch.until(lambda: all(launch.lines[rank] for rank in (0, 1)), 30, "to start")
        pids = [launch.pid(rank) for rank in (0, 1)] + [int(launch.lines[rank][0]) for rank in (0, 1)]
        assert all(map(is_alive, pids))
    assert not any(map(is_alive, pids))


def test_ranks_end_if_not_all_of_them_can_be_started(
    here: Session, script: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    script.write_text(STARTS_OTHERS)
    start, children = Launch._start, list[Any]()

    def start_one(launch: Launch, *words: Any) -> Any:
        if children:
            raise BlockingIOError("no more processes")
        children.append(start(launch, *words))
        return children[0]

    monkeypatch.setattr(Launch, "_start", start_one)
    with pytest.raises(BlockingIOError), Launch(here, "launch", script, ranks=2):
        pass
    assert children[0].returncode is not None


LAUNCHES = """
import sys
from pathlib import Path
from tests.gpu import run
from tests.gpu.launch import Launch
from tests.gpu.session import Session
folder, script = map(Path, sys.argv[1:])
run.end_by_exception()
with Launch(Session(folder, sys.executable, None, True), "launch", script, ranks=2) as launch:
    launch.until(lambda: all(launch.lines[rank] for rank in (0, 1)), 30, "to start")
    print(*(launch.pid(rank) for rank in (0, 1)), flush=True)
    launch.until(lambda: False, 600, "for ever")
"""


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP, signal.SIGKILL])
def test_no_rank_is_left_behind_by_a_launch_that_is_ended(tmp_path: Path, script: Path, number: int) -> None:
    script.write_text("import signal\nsignal.signal(15, signal.SIG_IGN)\nprint('here')\nsignal.pause()\n")
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(map(str, (ROOT, ROOT / "files/node")))}
    words = [sys.executable, "-c", LAUNCHES, tmp_path / "session", script]
    with subprocess.Popen(words, env=environment, stdout=subprocess.PIPE, text=True) as launching:
        assert launching.stdout
        pids = [int(word) for word in launching.stdout.readline().split()]
        assert len(pids) == 2 and all(map(is_alive, pids))
        launching.send_signal(number)
        assert launching.wait(30) == (-number if number == signal.SIGKILL else 128 + number)
    deadline = time.monotonic() + 10
    while any(map(is_alive, pids)) and time.monotonic() < deadline:
        time.sleep(0.01)
    assert not any(map(is_alive, pids))


def test_a_program_that_takes_too_long_is_ended_with_its_children(here: Session, tmp_path: Path) -> None:
    pid, script = tmp_path / "pid", tmp_path / "parent.py"
    script.write_text(
        "import subprocess, sys\n"
        "child = subprocess.Popen(['sleep', '600'])\n"
        "open(sys.argv[1], 'w').write(str(child.pid))\n"
        "child.wait()\n"
    )
    with pytest.raises(Failed, match=r"parent.py has not ended in 10 s"):
        here.run(script, pid, seconds=10)
    deadline = time.monotonic() + 30
    while is_alive(int(pid.read_text())):
        assert time.monotonic() < deadline
        time.sleep(0.05)


def is_alive(pid: int) -> bool:
    """A zombie is not: the system's first process may take its time to read its exit code."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def test_a_missing_open_mpi_is_one_sentence(
    here: Session, script: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(open_mpi, "FOLDERS", (str(tmp_path),))
    with (
        pytest.raises(Failed, match=r"no mpirun: .* name the folder: --mpi FOLDER"),
        Launch(here, "launch", script, through_mpirun=True),
    ):
        pass


@pytest.mark.parametrize(("rate", "is_fast"), [(100.0, True), (98.0, False)])
def test_the_launcher_is_held_to_torchrun_on_a_gpu_alone(
    rate: float, is_fast: bool, here: Session, on_gpu: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(launcher, "by_the_launcher", lambda *_words: {"samples_per_second": rate, "device": "cuda"})
    monkeypatch.setattr(launcher, "by_torchrun", lambda *_words: {"samples_per_second": 100.0, "device": "cuda"})
    assert "not judged" in launcher.compare(here)
    if is_fast:
        assert launcher.compare(on_gpu) == "100 samples/s, torchrun 100: 1.000 of it"
    else:
        with pytest.raises(Failed, match="less than 0.99"):
            launcher.compare(on_gpu)


RIGHT = {"right": True, "ranks": 2, "nccl": True, "seconds": 0.1}


@pytest.mark.parametrize(
    ("changed", "sentence"),
    [
        ({"right": False}, "the sum over 2 ranks is wrong"),
        ({"ranks": 1}, "1 of 2 ranks took part"),
        ({"nccl": False}, "the preflight used no NCCL"),
        ({"seconds": 0.0}, "took no time"),
    ],
)
def test_a_wrong_preflight_is_a_failure(changed: dict[str, object], sentence: str, on_gpu: Session) -> None:
    nccl.check(RIGHT, 2, on_gpu)
    with pytest.raises(Failed, match=sentence):
        nccl.check({**RIGHT, **changed}, 2, on_gpu)


LIBCUDA = """
int ok(void) { return 0; }
%s
int cuCtxSynchronize(void) { return 700; }
int cuGetErrorString(int code, const char **text) {
    (void)code; *text = "an illegal memory access was encountered"; return 0;
}
"""
CALLED = (
    *("cuInit", "cuDeviceGet", "cuDevicePrimaryCtxRetain", "cuCtxSetCurrent", "cuModuleLoadData"),
    *("cuModuleGetFunction", "cuLaunchKernel"),
)


@pytest.mark.program("cc")
def test_the_kernel_with_a_wrong_address_ends_with_the_drivers_words(tmp_path: Path) -> None:
    compiler = debian.installed_program("cc", "gcc", "libc6-dev")
    source = tmp_path / "libcuda.c"
    source.write_text(LIBCUDA % "\n".join(f"int {name}(void) {{ return 0; }}" for name in CALLED))
    subprocess.run([compiler, "-shared", "-fPIC", "-o", tmp_path / "libcuda.so.1", source], check=True)
    words = [sys.executable, SCRIPTS / "wrong_address.py", "gpu"]
    environment = {**os.environ, "LD_LIBRARY_PATH": str(tmp_path)}
    done = subprocess.run(words, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert done.stderr == "cuCtxSynchronize ended with 700: an illegal memory access was encountered\n"


def drill(script_output: str, lines: list[str], on_gpu: Session, monkeypatch: pytest.MonkeyPatch) -> str:
    """Run the drill on a machine whose kernel log gets these lines."""
    script = on_gpu.folder / "wrong_address.py"
    script.write_text(f"import sys\nsys.exit({script_output!r})\n")
    log = [(7, "booted")]

    def read() -> Reading:
        log.extend(enumerate(lines, 8))
        return ONE_GPU

    monkeypatch.setattr(drills, "SCRIPTS", on_gpu.folder)
    monkeypatch.setattr(drills, "XID_SECONDS", 0.0)
    monkeypatch.setattr(kernel_log, "messages", lambda after=-1: [message for message in log if message[0] > after])
    monkeypatch.setattr(nvml, "read", read)
    return drills.wrong_address(on_gpu)


def test_an_xid_of_a_program_leaves_the_node_healthy(on_gpu: Session, monkeypatch: pytest.MonkeyPatch) -> None:
    text = drill("an illegal memory access", [XID.format(31)], on_gpu, monkeypatch)
    assert text.startswith("a wrong address is the program's fault: GPU 0 ") and text.endswith("(Xid 31)")


@pytest.mark.parametrize(
    ("output", "lines", "sentence"),
    [
        ("no kernel image is available", [XID.format(31)], "ended with 1: no kernel image is available"),
        ("an illegal memory access", [], "the kernel log has had no Xid"),
        ("an illegal memory access", [XID.format(79)], "a program's error counts as the node's: .*Xid 79"),
    ],
)
def test_another_end_of_that_drill_is_a_failure(
    output: str, lines: list[str], sentence: str, on_gpu: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(Failed, match=sentence):
        drill(output, lines, on_gpu, monkeypatch)
