"""Finding a Java: whose it is, how old it may be, and what an error says to do."""

import subprocess
from pathlib import Path

import pytest

from pairbus.errors import SparkUnavailableError
from pairbus.spark.platform.java import Java, find_java, launcher_home


def a_java(home: Path, version: str | None = "21.0.1", script: str = "#!/bin/sh\nexit 1\n") -> Path:
    (home / "bin").mkdir(parents=True)
    (home / "bin" / "java").write_text(script)
    (home / "bin" / "java").chmod(0o755)
    if version is not None:
        (home / "release").write_text(f'IMPLEMENTOR="x"\nJAVA_VERSION="{version}"\n')
    return home


def test_java_home_wins(tmp_path: Path) -> None:
    named, other = a_java(tmp_path / "named", "17.0.2"), a_java(tmp_path / "other")
    environment = {"JAVA_HOME": str(named), "PATH": str(other / "bin")}
    assert find_java(environment, bundled=lambda: other) == Java(named, 17)


def test_java_on_the_path_is_used_if_it_is_new_enough(tmp_path: Path) -> None:
    good, bundled = a_java(tmp_path / "good"), a_java(tmp_path / "bundled", "25")
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "java").symlink_to(good / "bin" / "java")
    assert find_java({"PATH": str(tmp_path / "bin")}, bundled=lambda: bundled) == Java(good, 21)


def test_an_old_java_on_the_path_is_passed_over(tmp_path: Path) -> None:
    old, bundled = a_java(tmp_path / "old", "1.8.0_402"), a_java(tmp_path / "bundled", "25")
    assert find_java({"PATH": str(old / "bin")}, bundled=lambda: bundled) == Java(bundled, 25)


def test_without_papers_it_is_asked(tmp_path: Path) -> None:
    home = a_java(tmp_path / "java", None, "#!/bin/sh\necho 'openjdk version \"17.0.15\" 2025-04-15' >&2\n")
    assert find_java({"JAVA_HOME": str(home)}) == Java(home, 17)


def test_the_java_that_pip_brings_is_found_where_there_is_no_other(tmp_path: Path) -> None:
    assert find_java({"PATH": str(tmp_path)}).version >= 17


@pytest.mark.parametrize(
    ("version", "script", "says"),
    [
        ("11.0.2", "", "is Java 11, and Spark needs 17 or later; set JAVA_HOME to a Java 17 or later, or unset it"),
        (None, "#!/bin/sh\nexit 1\n", "its bin/java does not start; set JAVA_HOME"),
    ],
)
def test_a_java_home_that_is_no_good_is_named_with_the_cure(
    tmp_path: Path, version: str | None, script: str, says: str
) -> None:
    home = a_java(tmp_path / "java", version, script)
    with pytest.raises(SparkUnavailableError, match=says) as raised:
        find_java({"JAVA_HOME": str(home)})
    assert str(home) in str(raised.value)


def test_a_java_home_that_is_none(tmp_path: Path) -> None:
    with pytest.raises(SparkUnavailableError, match=r"is not the home of a Java: it has no bin/java; set JAVA_HOME"):
        find_java({"JAVA_HOME": str(tmp_path)})


def test_no_java_at_all(tmp_path: Path) -> None:
    with pytest.raises(SparkUnavailableError, match=r"no Java was found.*pip install 'pairbus\[spark\]'"):
        find_java({"PATH": str(tmp_path)}, bundled=lambda: None)
    old = a_java(tmp_path / "old", "8")
    with pytest.raises(SparkUnavailableError, match=r"is version 8, and Spark needs Java 17 or later; pip install"):
        find_java({"PATH": str(old / "bin")}, bundled=lambda: None)


@pytest.mark.parametrize(
    ("version", "make", "use"),
    [("25", "-XX:AOTCacheOutput=", "-XX:AOTCache="), ("17", "-XX:ArchiveClassesAtExit=", "-XX:SharedArchiveFile=")],
)
def test_the_launcher_drops_one_flag_and_remembers_classes(tmp_path: Path, version: str, make: str, use: str) -> None:
    home = a_java(tmp_path / "a java", version, '#!/bin/sh\nfor each do echo "$each"; done\n')
    launcher = launcher_home(Java(home, int(version)), cache=tmp_path / "cache")

    def start(*arguments: str) -> list[str]:
        done = subprocess.run([launcher / "bin" / "java", *arguments], capture_output=True, text=True, check=True)
        return done.stdout.splitlines()

    flag, submit = "--add-modules=jdk.incubator.vector", "org.apache.spark.deploy.SparkSubmit"
    assert start("-Dx=a b", flag, "Main") == ["-Dx=a b", "Main"]
    assert start("org.apache.spark.launcher.Main", submit) == ["org.apache.spark.launcher.Main", submit]
    assert start(flag, submit, "--name", "a b") == [f"{make}{launcher}/spark.cache", submit, "--name", "a b"]
    (launcher / "spark.cache").touch()
    assert start(submit) == [f"{use}{launcher}/spark.cache", submit]
    assert launcher_home(Java(home, int(version)), cache=tmp_path / "cache") == launcher
    assert launcher_home(Java(home, int(version)), spark="other", cache=tmp_path / "cache") != launcher
