"""The layers of tests: what each of them runs, and when it runs.

The gate runs for every change. A path layer runs if the change concerns it (tests/layers/changes.py has the table);
for some of them the gate has a smaller form. A nightly part runs with `make test-nightly`, and what needs a GPU, a
snapshot of published software or many hours runs on demand.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from contextvars import ContextVar
from dataclasses import dataclass, replace
from pathlib import Path

from tests import models
from tests.images import FRAMEWORKS
from tests.layers.commands import (
    GRACE_SECONDS,
    HANG_SECONDS,
    LONG_HANG_SECONDS,
    ROOT,
    SILENCE_SECONDS,
    command,
    report,
)
from tests.layers.results import REPORTS, Result, counted
from tests.published.programs import VARIABLE as SOURCES

COLLECTION = "collections/ansible_collections/deeplearning/aws"
TYPED = (f"{COLLECTION}/plugins", "files/node")
"""mypy checks these strictly. The link gives plugins their full names."""

LONG_SCENARIOS = ("framework", "horovod_build", "monitoring")
"""Molecule scenarios that only the nightly tier runs."""
GATE_SCENARIO = "default"
"""The whole path, from an empty account to a trained model."""

MACHINES, PROCESSOR, IMAGE = "machines", "processor", "image"
"""Lanes: layers of one lane run one after the other, and lanes side by side. The first mostly waits for machines, so
the second, which computes, gives way to it, but not so far that other programs of a busy machine stop it."""
LANE_NICENESS = {MACHINES: 0, PROCESSOR: 4, IMAGE: 0}

LAYER_NAME = ContextVar("LAYER_NAME", default="tests")
"""The layer that runs: its reports are named after it."""

Run = Callable[[Path], Result]
"""Takes the virtual environment to use."""


@dataclass(frozen=True)
class Layer:
    name: str
    run: Run
    gate: Run | None = None
    """Its form in the gate; None if it is not part of the gate."""
    lane: str = PROCESSOR
    after: str = ""
    """A layer of another lane that has to end first."""
    root: bool = False
    """It boots machines."""
    newest: bool = False
    """It runs on the newest Python that is installed."""
    needs: str = ""
    """A variable of the environment, without which it does not run."""


def existing(*places: str) -> list[str]:
    """Return those that are a file, or hold any Python."""
    return [place for place in places if (ROOT / place).is_file() or next((ROOT / place).rglob("*.py"), None)]


def checks(commands: Callable[[Path], dict[str, list[str]]]) -> Run:
    """Run all commands, also after one that fails, and name those that failed."""

    def run(venv: Path) -> Result:
        # They print nothing while they work, which takes long on a busy machine.
        ended = {name: command(*words, venv=venv, silence=LONG_HANG_SECONDS) for name, words in commands(venv).items()}
        failed = [name for name, check in ended.items() if not check.ok]
        detail = f"failed: {', '.join(failed)}" if failed else f"{len(ended)} checks passed"
        return Result(not failed, detail, sum(check.cpu_seconds for check in ended.values()))

    return run


def lint_commands(_venv: Path) -> dict[str, list[str]]:
    return {
        "ansible-lint": ["ansible-lint", "--offline"],
        "yamllint": ["yamllint", "--strict", "."],
        "ruff": ["ruff", "check"],
        "mypy": [
            *("mypy", "tests/run.py", "tests/layers", "tests/forking", "tests/deprecations.py", "conftest.py"),
            "tests/lint",
            *existing(*TYPED),
        ],
        "mypy of the local cloud": ["env", "-C", "localcloud", "mypy", "src/localcloud"],
        "policies": ["python", "-m", "tests.lint.policies"],
    }


def packaging_commands(venv: Path) -> dict[str, list[str]]:
    return {
        "packaging": ["python", "-m", "tests.lint.packaging"],
        "docs": ["make", "-s", "docs", f"VENV={venv.relative_to(ROOT)}"],
    }


def program(*words: str, detail: str, silence: float = SILENCE_SECONDS) -> Run:
    """Return a layer that is one command."""

    def run(venv: Path) -> Result:
        ended = command(*words, venv=venv, silence=silence)
        return Result(ended.ok, detail, ended.cpu_seconds)

    return run


GATE, ALL_BUT_LONG, LONG = "gate and not long", "not long", "long"
"""Expressions of pytest's markers: the tests of the gate, of a whole layer, and of its nightly part."""


def pytest(*places: str, marker: str = ALL_BUT_LONG, processes: int = 1, project: str = "") -> Run:
    """Return a layer of tests. More than one process is for tests that share nothing outside their file.

    A project is a folder with settings of its own for pytest.
    """

    def run(venv: Path) -> Result:
        paths = existing(*places)
        if not paths:
            return Result(False, f"no tests in {', '.join(places)}")
        settings = ["-c", f"{project}/pyproject.toml", "--rootdir", project] if project else []
        several = ["-n", str(processes), "--dist", "loadfile" if processes > 1 else "load"]
        hang = LONG_HANG_SECONDS if marker == LONG else HANG_SECONDS
        return run_and_count(venv, *settings, "-m", marker, *several, *paths, hang=hang)

    return run


def on_debian(suite: str, *tests: str) -> Run:
    """Return a layer whose machines boot another release of Debian."""
    variables = [f"LOCALCLOUD_SUITE={suite}"]
    return lambda venv: run_and_count(venv, "-n", "1", *tests, variables=variables, hang=LONG_HANG_SECONDS)


def run_and_count(venv: Path, *arguments: str, hang: float, variables: Sequence[str] = ()) -> Result:
    """Run pytest in processes of pytest-xdist: if one of them is ended because its test hangs, the others go on."""
    REPORTS.mkdir(parents=True, exist_ok=True)
    file = REPORTS / f"{LAYER_NAME.get()}.xml"
    file.unlink(missing_ok=True)
    limit = ["-o", f"faulthandler_timeout={hang:g}", "-o", "faulthandler_exit_on_timeout=true"]
    words = ["env", *variables, *models_variables(), "pytest", "-q", "--durations=5", f"--junit-xml={file}", *limit]
    ended = command(*words, *arguments, venv=venv, silence=hang + GRACE_SECONDS)
    return counted(ended.code or len(ended.deprecations), file, ended.cpu_seconds)


def forms_file(layer: str) -> Path:
    """Return the file in which the local cloud of a layer records forms of requests and answers."""
    return REPORTS / f"{layer}{models.SUFFIX}"


def models_variables() -> list[str]:
    """Return the settings that make the local cloud of the present layer record those of our own code."""
    settings = {models.VARIABLE: forms_file(LAYER_NAME.get()), **models.ORIGINS}
    return [f"{name}={value}" for name, value in settings.items()]


def with_models(result: Result, layer: str) -> Result:
    """Fail a layer whose requests or answers AWS's models do not have."""
    seen = models.read(forms_file(layer))
    if not seen.operations:
        return result
    report(f"models: {seen}")
    problems = models.problems(seen)
    for line in problems:
        report(f"models: {line}")
    detail = f"{result.detail}, {len(problems)} problems with AWS's models" if problems else result.detail
    return replace(result, ok=result.ok and not problems, detail=detail)


def scenarios() -> list[str]:
    """Return the molecule scenarios that a whole layer runs."""
    return sorted({place.parent.name for place in ROOT.glob("molecule/*/molecule.yml")} - set(LONG_SCENARIOS))


def molecule(names: Callable[[], Iterable[str]]) -> Run:
    """Return one run of molecule for all scenarios, as they share the local cloud: the first that fails ends it."""

    def run(venv: Path) -> Result:
        chosen = list(names())
        options = [word for name in chosen for word in ("-s", name)]
        ended = command("env", *models_variables(), "molecule", "test", *options, venv=venv)
        passed = f"{len(chosen)} scenario{'s' if len(chosen) > 1 else ''} passed"
        return Result(ended.ok, passed if ended.ok else "a scenario failed", ended.cpu_seconds)

    return run


def both(first: Run, second: Run) -> Run:
    """Return a layer of two parts. The second part runs also if the first has failed."""
    return lambda venv: first(venv) + second(venv)


def chaos(*parts: str) -> Run:
    words = ("python", "bench/chaos", *parts)
    return program(*words, detail="bench/results/chaos.md", silence=LONG_HANG_SECONDS)


def gpu(venv: Path) -> Result:
    """Run the steps of `make gpu` on the processor, with the interpreter and the Open MPI of the machines' image."""
    built = command("python", *IMAGE_BUILD, venv=venv)
    steps = command("python", "-S", "tests/gpu/run.py", "--processor", venv=venv)
    detail = "all steps on the processor" if steps.ok else "a step failed"
    return Result(built.ok and steps.ok, detail, built.cpu_seconds + steps.cpu_seconds)


UNIT = ("tests/unit",)
ACCOUNT = ("tests/account",)
LOCALCLOUD_UNIT = ("localcloud/tests/unit",)
LOCALCLOUD = ("localcloud/tests/integration",)
INTEGRATION = ("tests/integration",)
MOLECULE = ("tests/molecule",)
GPU = ("tests/gpu",)
EMR = ("tests/integration/test_emr.py",)
SMOKE = ("tests/integration/test_smoke.py",)
RUNS = (
    *(f"tests/integration/test_{name}.py" for name in ("bad_gpu", "staging", "tensorpack")),
    *sorted(str(file.relative_to(ROOT)) for file in ROOT.glob("tests/integration/test_training*.py")),
)
CLUSTERS = tuple(
    sorted({str(file.relative_to(ROOT)) for file in ROOT.glob("tests/integration/test_*.py")} - {*EMR, *SMOKE, *RUNS})
)
"""The other files of the layer integration. Its long tests are several parts, each of at most an hour or so."""
PUBLISHED = ("tests/published",)
DEBIAN_11 = ("tests/debian_11",)
DEBIAN_13 = (
    *(f"tests/integration/test_{name}.py" for name in ("launcher", "training")),
    *(
        f"tests/integration/test_{name}]"
        for name in (
            "training_by_hand.py::test_an_old_way_by_hand_on_the_master_works[mpirun",
            "training_by_hand.py::test_an_old_way_by_hand_on_the_master_works[tensorflow",
            "old_scripts.py::test_a_script_with_an_old_interface_runs_unchanged[generate_trainer",
            "old_scripts.py::test_a_script_with_an_old_interface_runs_unchanged[run.sh",
            "old_scripts.py::test_a_script_with_an_old_interface_runs_unchanged[health",
        )
    ),
    # Last: it leaves a worker less.
    "tests/integration/test_training_recovery.py",
)

IMAGE_BUILD = ("-m", "localcloud", "image", "build", "--with", FRAMEWORKS["bookworm"])

lint = checks(lint_commands)
packaging = checks(packaging_commands)
sanity = program("tests/sanity/run", detail="ansible-test")
unit = pytest(*UNIT, processes=2)
image = program("python", *IMAGE_BUILD, detail="built, if it was missing")


def _by_name(*layers: Layer) -> dict[str, Layer]:
    return {layer.name: layer for layer in layers}


LAYERS = _by_name(
    Layer("lint", lint, gate=lint),
    Layer("unit", unit, gate=unit),
    Layer(
        "account",
        pytest(*ACCOUNT, processes=2),
        gate=pytest(*ACCOUNT, marker=GATE, processes=2),
    ),
    Layer("sanity", sanity),
    Layer("packaging", packaging),
    Layer("localcloud-unit", pytest(*LOCALCLOUD_UNIT, processes=2, project="localcloud")),
    Layer("image", image, gate=image, lane=IMAGE, root=True),
    Layer("localcloud", pytest(*LOCALCLOUD, project="localcloud"), lane=MACHINES, root=True),
    # It installs the wheel of Horovod that the build of the image made.
    Layer(
        "molecule",
        both(molecule(scenarios), pytest(*MOLECULE)),
        gate=molecule(lambda: [GATE_SCENARIO]),
        lane=MACHINES,
        after="image",
        root=True,
    ),
    # Last, as the image takes minutes where it is missing.
    Layer(
        "integration",
        pytest(*INTEGRATION),
        gate=pytest(*INTEGRATION, marker=GATE),
        lane=MACHINES,
        after="image",
        root=True,
    ),
)
"""The layers of `make test`: the gate and the path layers."""

NIGHTLY = _by_name(
    Layer("newest-lint", both(lint, packaging), newest=True),
    Layer("newest-sanity", sanity, newest=True),
    Layer("newest-unit", unit, newest=True),
    Layer("newest-account", pytest(*ACCOUNT, processes=2), newest=True),
    Layer("long-account", pytest(*ACCOUNT, marker=LONG)),
    Layer("long-localcloud", pytest(*LOCALCLOUD, marker=LONG, project="localcloud"), root=True),
    Layer("clusters", pytest(*CLUSTERS, marker=LONG), root=True),
    Layer("runs", pytest(*RUNS, marker=LONG), root=True),
    Layer("emr", pytest(*EMR, marker=LONG), root=True),
    Layer("debian-11", on_debian("bullseye", *DEBIAN_11), root=True),
    Layer("debian-13", on_debian("trixie", *DEBIAN_13), root=True),
    # It mounts the machines' image and boots none, so it leaves a local cloud alone that starts beside it.
    Layer("gpu-environments", pytest(*GPU, marker=LONG), lane=IMAGE, root=True),
    Layer("long-molecule", both(molecule(lambda: LONG_SCENARIOS), pytest(*MOLECULE, marker=LONG)), root=True),
)
"""What `make test-nightly` runs after all layers."""

ON_DEMAND = _by_name(
    Layer("chaos-calls", chaos("task", "write", "emr")),
    Layer("chaos-machines", chaos("machines"), root=True),
    Layer("chaos-soak", chaos("soak"), root=True),
    Layer("smoke", pytest(*SMOKE, marker=LONG), root=True),
    Layer("published", pytest(*PUBLISHED, marker=LONG), root=True, needs=SOURCES),
    Layer("gpu", gpu, root=True),
)
"""What runs only if it is named."""

ALL = LAYERS | NIGHTLY | ON_DEMAND


def path_layers() -> list[str]:
    """Return the layers that run in full only for a change that concerns them."""
    return [layer.name for layer in LAYERS.values() if layer.gate is not layer.run]


MARKED_LONG = {
    "long-account": ACCOUNT,
    "long-localcloud": LOCALCLOUD,
    "clusters": CLUSTERS,
    "runs": RUNS,
    "emr": EMR,
    "smoke": SMOKE,
    "long-molecule": MOLECULE,
    "gpu-environments": GPU,
    "published": PUBLISHED,
}
"""The places of the tests with the marker `long`, by the part that runs them."""
