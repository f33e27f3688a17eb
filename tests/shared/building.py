"""How tests build native code: the CMake to use, and calls that must succeed."""

import contextlib
import fcntl
import os
import shutil
import subprocess
import sys
from pathlib import Path


def find_cmake():
    """The one beside this interpreter (the cmake package) or the system's."""
    beside = Path(sys.executable).parent
    return shutil.which("cmake", path=f"{beside}{os.pathsep}{os.environ.get('PATH', os.defpath)}")


@contextlib.contextmanager
def building_in(folder):
    """A folder below a run's temporary one that all its processes share, and build in one after the other."""
    run = folder.parent.parent if folder.parent.name.startswith("popen-") else folder.parent  # pytest-xdist's, or alone
    folder = run / folder.name
    folder.mkdir(exist_ok=True)
    with open(run / f"{folder.name}.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield folder


def call(*arguments):
    done = subprocess.run([str(a) for a in arguments], capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{arguments}\n{done.stdout}\n{done.stderr}"
    return done.stdout
