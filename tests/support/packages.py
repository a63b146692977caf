"""Programs of the system's packages that tests need."""

import os
import shutil
import subprocess


def install(package: str) -> None:
    """Install a package, if this may be done; whoever needs it looks whether it is there. No service is started."""
    apt = shutil.which("apt-get")
    if apt is not None and os.geteuid() == 0:
        subprocess.run(
            [apt, "install", "--yes", "--quiet", "--no-install-recommends", package],
            check=False,
            stdout=subprocess.DEVNULL,
            env=os.environ | {"DEBIAN_FRONTEND": "noninteractive", "RUNLEVEL": "1"},
        )
