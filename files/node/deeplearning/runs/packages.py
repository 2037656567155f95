"""A run's own packages: what its requirements add to the framework's environment, on this node's own disk.

One node resolves and builds them, and keeps them as an archive next to the runs; the others unpack that. Their name is
a digest of the requirements and of the environment, so another run with both has them at once. The processes find them
before the environment's own, which never changes.
"""

from __future__ import annotations

import ast
import contextlib
import fcntl
import hashlib
import json
import os
import re
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from deeplearning import programs, safe_files, safe_paths
from deeplearning.boot.system import APT_GET
from deeplearning.config import Config, read_config
from deeplearning.contract import atomic_file, cuda_toolkits, paths
from deeplearning.contract.errors import UserError
from deeplearning.contract.frameworks import COMPILERS, RECORDS
from deeplearning.contract.run_request import MOST_REQUIREMENTS
from deeplearning.identity import as_root, become
from deeplearning.runs import units
from deeplearning.runs.folder import MALFORMED, Folder, is_listed, runs_root, runs_without_result, uses_our_environment
from deeplearning.runs.gpu_proofs import start_of

FILE = "requirements.txt"
"""In the run's folder."""
PROBLEM = "packages.json"
"""In the run's folder: why a node could not install them, which is the run's end: all nodes have the same file."""
LOG = "logs/packages.log"
"""In the run's folder: what pip has printed."""
OLDEST_PIP = (22, 3)
"""It reports what it would install."""
OURS = re.compile(r"nvidia-|triton$|horovod$")
"""Packages that stay as they are in the environment, with the framework itself: they belong to one another."""
BUILD_TOOLS = ("setuptools", "wheel", "packaging", "ninja", "psutil")
"""What extensions of a framework are built with, such as flash-attn, where pip does not bring the tools itself."""
PIP = ("-m", "pip", "--no-input", "--disable-pip-version-check", "--no-cache-dir")
SECONDS = 3600.0
"""After this pip, or a compiler that it has started, is not waited for any more."""
SPARE_FOLDERS = 2
"""How many stay on a node's disk, the last used, beside those of runs without a result."""
ARCHIVE_SECONDS = 30 * 86400.0
"""How long an archive stays that no node unpacks, unless a run without a result needs it."""
LEAST_SECRET = 6
"""Characters of a value of the run's environment that is hidden in what pip prints."""
_SOURCE = re.compile(r"(-i|--index-url|--extra-index-url|--trusted-host|-f|--find-links|--no-index)\b")
"""Options in requirements that say where packages come from."""
_LOGIN = re.compile(r"://([^/\s@]+)@([^/\s#]+)")
_MISSING = re.compile(r"No module named '(\w+)'")
_BUILD_DEPENDENCIES = re.compile(r"build dependencies.* did not run")
_SYSTEM_ID = re.compile(r'^ID="?(\w+)', re.MULTILINE)


@dataclass(frozen=True)
class Packages:
    """What a run's requirements add to an environment."""

    requirements: str
    framework: str
    python: str
    """the environment's"""
    marker: dict[str, Any]
    """the environment's"""

    @property
    def digest(self) -> str:
        facts = [self.requirements, self.marker["requirements_sha256"], self.marker["python"]]
        return hashlib.sha256(json.dumps(facts).encode()).hexdigest()[:32]

    @property
    def folder(self) -> str:
        return f"{paths.PACKAGES}/{self.digest}"


def text_of(request: dict[str, Any]) -> str:
    """Return the requirements of a request, which may name a file of this node; empty if it has none."""
    text: str = request.get("requirements") or ""
    if not text.startswith("/"):
        return text
    try:
        return safe_files.read(text, MOST_REQUIREMENTS).decode()
    except (OSError, ValueError) as error:
        raise UserError(f"requirements is {text}, which cannot be read on the master: {error}.") from None


def checksum(text: str) -> str | None:
    """Return what a run's record has of its requirements."""
    return hashlib.sha256(text.encode()).hexdigest() if text else None


def of_run(folder: Folder, framework: str, python: str) -> Packages:
    """Return the packages of a run that has requirements."""
    marker = Path(python).parents[1] / paths.MARKER
    requirements = safe_files.read(folder.file(FILE), MOST_REQUIREMENTS).decode()
    return Packages(requirements, framework, python, json.loads(marker.read_text(encoding="utf-8")))


def require(run: dict[str, Any], folder: Folder) -> None:
    """Raise Preparing or Unfit if the packages of a run are not on this node."""
    if not run.get("requirements"):
        return
    try:
        packages = of_run(folder, run["framework"], run["python"])
        if os.path.isdir(packages.folder):
            # The time of its last use decides what is removed first, and no run ends for that.
            with contextlib.suppress(OSError):
                os.utime(packages.folder, follow_symlinks=False)
            return
    except (UserError, OSError, ValueError, KeyError, TypeError) as error:
        problem = f"its packages cannot be named, as the environment or {folder.file(FILE)} is damaged: {error}"
        raise units.Unfit(problem) from None
    failing = "its packages cannot be installed"
    if problem := problem_of(run, folder):
        raise units.Unfit(f"{failing}: {problem}")
    unit = f"deeplearning-packages-{run['run_id']}.service"
    units.prepare(unit, [paths.PROGRAM, "run", "packages", folder.path], "it installs its packages", failing)


def problem_of(run: dict[str, Any], folder: Folder) -> str:
    """Return why a node could not install them for this start of the run; empty if none has failed."""
    failed = (folder.read(PROBLEM) or {}) if is_listed(folder.file(PROBLEM)) else {}
    return str(failed["problem"]) if failed.get("run") == start_of(run) else ""


def main(argv: list[str]) -> None:
    """Install a run's packages on this node, as a unit does: `deeplearning run packages FOLDER`."""
    config = read_config()
    create_root(config.user)
    become(config.user)
    folder = Folder(argv[0])
    run = folder.run()
    packages = of_run(folder, run["framework"], run["python"])
    archives = f"{runs_root(config)}/.packages"
    try:
        install(packages, f"{archives}/{packages.digest}.tar", folder)
    except (UserError, OSError) as error:
        print(error, file=sys.stderr)
        # The next survey reads it. A unit that has failed would be the problem of the next start, too.
        folder.write(PROBLEM, {"run": start_of(run), "problem": f"{error} ({socket.gethostname()})"})
        return
    try:
        remove_old(archives, {packages.digest, *needed_digests(config)})
    except (UserError, OSError, *MALFORMED) as error:
        print(f"packages of earlier runs were not removed: {error}", file=sys.stderr)


def create_root(user: str) -> None:
    install_folder = as_root("install", "-d", "-m", "755", "-o", user, paths.PACKAGES)
    programs.check(*install_folder, failing=f"{paths.PACKAGES} cannot be created")


def install(packages: Packages, archive: str, folder: Folder) -> None:
    """Unpack the archive, of the shared file system, on this node's disk. Build it before, if no node has."""
    # A run that was stopped may have left a process that builds.
    with atomic_file.locked(f"{paths.PACKAGES}/.lock-{packages.digest}"):
        if os.path.isdir(packages.folder):
            return
        # What a process that was killed has left takes room, and stands in nothing's way.
        for left in Path(paths.PACKAGES).glob(f".{packages.digest}.*"):
            shutil.rmtree(left, ignore_errors=True)
        if not is_listed(archive):
            build_for_all(packages, archive, folder)
        with tempfile.TemporaryDirectory(prefix=f".{packages.digest}.", dir=paths.PACKAGES) as temporary:
            new = f"{temporary}/new"
            os.mkdir(new)
            unpack = ("tar", "-xf", archive, "--no-same-owner", "-C", new)
            programs.check(*unpack, failing=f"{archive} cannot be unpacked")
            # tar has set the time of the build.
            os.utime(new)
            os.rename(new, packages.folder)
        # An archive without it is removed sooner, and built again.
        with contextlib.suppress(OSError):
            os.utime(archive)


def needed_digests(config: Config) -> Iterator[str]:
    """Yield the packages that runs without a result need on this node. Raise an error if one cannot be named."""
    for folder in runs_without_result(config):
        run = folder.run()
        if run.get("requirements") and uses_our_environment(run):
            yield of_run(folder, run["framework"], run["python"]).digest


def remove_old(archives: str, needed: Collection[str]) -> None:
    """Remove packages that no run needs, but the last used: each change of requirements leaves some."""
    for archive in digest_paths(archives, r"\.tar(\.partial)?", needed):
        if archive.lstat().st_mtime < time.time() - ARCHIVE_SECONDS:
            archive.unlink(missing_ok=True)
    for folder in digest_paths(paths.PACKAGES, "", needed)[:-SPARE_FOLDERS]:
        # A survey never sees a part of it.
        folder.rename(folder.with_name(f".{folder.name}.old"))
    for left in Path(paths.PACKAGES).glob(".*.old"):
        # What cannot be removed keeps no other here, and is tried again the next time.
        shutil.rmtree(left, ignore_errors=True)


def digest_paths(root: str, ending: str, needed: Collection[str]) -> list[Path]:
    """Return the paths that a digest names which is not needed, oldest first."""
    digests = {path: re.fullmatch(f"([0-9a-f]{{32}}){ending}", path.name) for path in Path(root).iterdir()}
    others = [path for path, digest in digests.items() if digest and digest[1] not in needed]
    return sorted(others, key=lambda path: path.lstat().st_mtime)


def build_for_all(packages: Packages, archive: str, folder: Folder) -> None:
    """Let one node build, and others wait. The lock ends with its process, also when the node is lost."""
    root = os.path.dirname(archive)
    safe_paths.own_folder(root, mode=0o700)
    with open(safe_paths.own_file(f"{root}/{packages.digest}.lock", 0o600), "r+b") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        # Another node has built it meanwhile, or could not.
        if problem := problem_of(folder.run(), folder):
            raise UserError(problem)
        if not is_listed(archive):
            with tempfile.TemporaryDirectory(prefix=f".{packages.digest}.", dir=paths.PACKAGES) as temporary:
                Builder(packages, temporary, folder).build(archive)


class Builder:
    """Builds packages in a temporary folder. All that pip prints is in the run's folder too."""

    def __init__(self, packages: Packages, temporary: str, folder: Folder) -> None:
        self.packages, self.temporary, self.log = packages, temporary, folder.file(LOG)
        self.target, self.tools = f"{temporary}/packages", f"{temporary}/tools"
        self.printed = ""
        """by the last command"""
        self.isolation: list[str] = []
        """pip's option if packages are built within the environment"""
        own = folder.environment()
        self.secrets = [value for value in own.values() if len(value) >= LEAST_SECRET]
        inherited = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "VIRTUAL_"))}
        # A login for an index or a repository comes by the option env: pip fills in ${NAME} in requirements.
        # git asks for no password, and so does not print the address with the login that it would ask for.
        quiet = {"GIT_TERMINAL_PROMPT": "0", "GIT_ASKPASS": "/bin/true"}
        self.environment = {**inherited, **own, **quiet, "TMPDIR": temporary}
        self.environment |= toolkit_variables(packages.marker["versions"], self.environment)
        lines = packages.requirements.splitlines()
        self.sources = [line for line in lines if _SOURCE.match(line)]
        self.logins = {host: login for login, host in _LOGIN.findall(packages.requirements)}

    def build(self, archive: str) -> None:
        os.makedirs(os.path.dirname(self.log), exist_ok=True)
        os.mkdir(self.target)
        self.renew_pip()
        pins, compiles = self.resolve()
        if compiles:
            self.install_compiler()
        if pins:
            pins_file = self.write("pins.txt", [*self.sources, *pins])
            self.pip_install("--target", self.target, "--no-deps", "-r", pins_file)
            self.check()
        partial = f"{archive}.partial"
        programs.check("tar", "-cf", partial, "-C", self.target, ".", failing=f"{partial} cannot be written")
        os.rename(partial, archive)

    def renew_pip(self) -> None:
        """Use a newer pip if the environment's, which is the system's, cannot report what it would install."""
        version = re.match(r"pip (\d+)\.(\d+)", programs.run(self.packages.python, *PIP, "--version").stdout)
        if version and tuple(map(int, version.groups())) < OLDEST_PIP:
            self.pip("install", "--target", self.tools, "-r", self.write("pip.txt", [*self.sources, "pip>=24"]))
            self.environment["PYTHONPATH"] = self.tools

    def resolve(self) -> tuple[list[str], bool]:
        """Return what has to be installed, and whether something of it is no wheel."""
        framework = RECORDS[self.packages.framework].package
        versions = self.packages.marker["versions"]
        ours = {framework, f"{framework}-cpu"}
        stay = [f"{name}=={version}" for name, version in versions.items() if name in ours or OURS.match(name)]
        if version := versions.get(f"{framework}-cpu"):
            # Other packages know TensorFlow without CUDA by this name.
            stay.append(f"{framework}=={version}")
        self.constrain(self.write("constraints.txt", stay))
        report = f"{self.temporary}/report.json"
        requirements = self.write(FILE, [self.packages.requirements])
        self.pip_install("--dry-run", "--report", report, "-r", requirements)
        with open(report, encoding="utf-8") as file:
            chosen = [each["download_info"] | {"name": each["metadata"]["name"]} for each in json.load(file)["install"]]
        return [pin_of(each, self.logins) for each in chosen], not all(each["url"].endswith(".whl") for each in chosen)

    def constrain(self, constraints: str) -> None:
        """Let packages that are built apart be built for the environment's framework, not for the newest one.

        pip before 25.3 passes all constraints on to builds, if they are in its variable. That replaces those of its
        configuration.
        """
        configuration = programs.run(self.packages.python, *PIP, "config", "list", env=self.environment).stdout
        values = re.findall(r"^(?:global|install|:env:)\.constraint=(.+)$", configuration, re.MULTILINE)
        own = [path for value in values for path in ast.literal_eval(value).split()]
        self.environment["PIP_CONSTRAINT"] = " ".join([constraints, *own])
        self.environment["PIP_BUILD_CONSTRAINT"] = constraints

    def pip_install(self, *arguments: str) -> None:
        """Install packages, each built apart from the environment; if one misses what that has, all within it."""
        try:
            self.pip("install", *self.isolation, *arguments)
        except UserError:
            framework = RECORDS[self.packages.framework].package
            missed = sorted(set(_MISSING.findall(self.printed)))
            # No index has the environment's version of it, such as one without CUDA.
            if _BUILD_DEPENDENCIES.search(self.printed) and re.search(
                rf"(satisfies the requirement|distribution found for|\(constraint\)) {framework}[=<>!~\[\s]",
                self.printed,
            ):
                missed = [framework]
            if self.isolation or not self.has_one_of(missed):
                raise
            self.build_within_the_environment()
            try:
                self.pip("install", *self.isolation, *arguments)
            except UserError as error:
                raise UserError(f"built within the environment, for {' and '.join(missed)}: {error}") from None

    def has_one_of(self, modules: Sequence[str]) -> bool:
        code = "import importlib.util, sys; print(any(map(importlib.util.find_spec, sys.argv[1:])))"
        answer = programs.run(self.packages.python, "-c", code, *modules, env=self.environment).stdout
        return answer.strip() == "True" or bool({*modules} & {*BUILD_TOOLS})

    def build_within_the_environment(self) -> None:
        for tool in BUILD_TOOLS:
            # Without one of them, a package that needs it says so.
            if tool not in self.packages.marker["versions"]:
                with contextlib.suppress(UserError):
                    self.pip("install", "--target", self.tools, "-r", self.write("tool.txt", [*self.sources, tool]))
        # For pip they are not installed, as a run may need them too. setuptools finds wheel by its metadata.
        for metadata in Path(self.tools).glob("*.dist-info"):
            if not metadata.name.startswith(("setuptools-", "wheel-")):
                shutil.rmtree(metadata)
        search = f"{self.tools}/bin:{self.environment.get('PATH', os.defpath)}"
        self.environment |= {"PYTHONPATH": self.tools, "PATH": search}
        # pip takes these for builds that are apart alone.
        del self.environment["PIP_BUILD_CONSTRAINT"]
        self.isolation = ["--no-build-isolation"]

    def install_compiler(self) -> None:
        """A package without a wheel for this machine is compiled. Only root can install what that needs."""
        if shutil.which("c++"):
            return
        system = _SYSTEM_ID.search(Path("/etc/os-release").read_text(encoding="utf-8"))
        version = ".".join(self.packages.marker["python"].split(".")[:2])
        names = [name.format(python=f"python{version}") for name in COMPILERS.get(system[1] if system else "", ())]
        if shutil.which("apt-get"):
            self.run(*as_root(*APT_GET.split(), "update"))
            install = ["env", "DEBIAN_FRONTEND=noninteractive", *APT_GET.split(), "install", "--no-install-recommends"]
        else:
            install = ["dnf", "install"]
        self.run(*as_root(*install, "-y", *names))

    def check(self) -> None:
        """Raise UserError if the packages break the environment's own."""
        before, after = self.conflicts(), self.conflicts(self.target)
        added = [line for line in after if line not in before]
        if added:
            raise UserError(f"the requirements contradict the environment of {self.packages.framework}: {added[0]}")
        imports = ", ".join(RECORDS[self.packages.framework].imports)
        self.run(self.packages.python, "-c", f"import {imports}", PYTHONPATH=self.target)

    def conflicts(self, folder: str = "") -> list[str]:
        environment = {**self.environment, "PYTHONPATH": folder}
        return programs.run(self.packages.python, *PIP, "check", env=environment).stdout.splitlines()

    def pip(self, *arguments: str) -> None:
        self.run(self.packages.python, *PIP, *arguments)

    def run(self, *command: str, **variables: str) -> None:
        """Run a command. Raise UserError with the reason that it has printed if it fails."""
        environment = {**self.environment, **variables}
        with tempfile.TemporaryFile("w+", dir=self.temporary, encoding="utf-8", errors="replace") as output:
            streams: dict[str, Any] = {"stdin": subprocess.DEVNULL, "stdout": output, "stderr": subprocess.STDOUT}
            try:
                code = subprocess.call(command, cwd=self.temporary, env=environment, timeout=SECONDS, **streams)
            except subprocess.TimeoutExpired:
                code = None
            output.seek(0)
            self.printed = output.read()
        # The log and the reason can be read by all users of the cluster.
        for secret in self.secrets:
            self.printed = self.printed.replace(secret, "***")
        with open(self.log, "a", encoding="utf-8") as log:
            log.write(self.printed)
        if code != 0:
            reason = reason_of(self.printed) if code else f"pip has not ended within {SECONDS / 60:g} minutes"
            raise UserError(f"{reason} (all of it: {self.log})")

    def write(self, name: str, lines: Sequence[str]) -> str:
        path = f"{self.temporary}/{name}"
        Path(path).write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
        return path


def toolkit_variables(versions: Mapping[str, str], environment: Mapping[str, str]) -> dict[str, str]:
    """Return how extensions for GPUs find the toolkit of the framework's CUDA.

    Another one that the run's `env` names wins. Empty if the environment is without CUDA, or no toolkit fits.
    """
    cuda = cuda_toolkits.version_of(cuda_toolkits.RUNTIME, versions)
    toolkit = cuda_toolkits.fitting(cuda) if cuda else None
    home = environment.get("CUDA_HOME") or (str(toolkit.folder) if toolkit else "")
    return {"CUDA_HOME": home, "PATH": f"{home}/bin:{environment.get('PATH', os.defpath)}"} if home else {}


def pin_of(chosen: dict[str, Any], logins: Mapping[str, str]) -> str:
    """Return the requirement that names exactly what pip has chosen, see PEP 610.

    pip leaves logins out of its report. `logins`: those of the requirements, by host.
    """
    scheme, separator, place = chosen["url"].partition("://")
    host = place.partition("/")[0]
    url = f"{scheme}://{logins[host]}@{place}" if host in logins else f"{scheme}{separator}{place}"
    if "vcs_info" in chosen:
        url = f"{chosen['vcs_info']['vcs']}+{url}@{chosen['vcs_info']['commit_id']}"
    fragments = [f"subdirectory={chosen['subdirectory']}"] if chosen.get("subdirectory") else []
    sha256 = chosen.get("archive_info", {}).get("hashes", {}).get("sha256")
    fragments += [f"sha256={sha256}"] if sha256 else []
    return f"{chosen['name']} @ {url}" + (f"#{'&'.join(fragments)}" if fragments else "")


def reason_of(printed: str) -> str:
    """Return why pip, git or a compiler has failed, as one line."""
    stripped = (line.strip().removeprefix("╰─> ") for line in printed.splitlines())
    lines = [programs.printable(line) for line in stripped if line]
    # Programs that build ask git for a version, also where there is no repository.
    lines = [line for line in lines if "not a git repository" not in line]
    both = [line for line in lines if re.match(r"The user requested|.* depends on ", line)]
    if both and any("conflicting dependencies" in line for line in lines):
        sides = "; ".join(line.replace("The user requested (constraint)", "the environment has") for line in both[:6])
        return f"requirements contradict one another or the environment: {sides}"
    if any("WARNING: Retrying" in line for line in lines) and any("from versions: none" in line for line in lines):
        return f"pip reaches no package index. Its own words: {next(line for line in lines if 'Retrying' in line)}"
    for pattern in (
        r": (fatal )?error: |^nvcc fatal",
        r"^fatal: ",
        r"ERROR: .*(requires a different Python|No matching distribution)",
        r"^(\w+\.)*\w+Error: ",
        r"ERROR: |E: |error: (?!subprocess-exited)",
    ):
        errors = [line for line in lines if re.search(pattern, line)]
        if errors:
            return errors[0]
    return programs.last_line(printed)
