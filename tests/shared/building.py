"""How tests build native code: the CMake to use, and calls that must succeed."""

import os
import shutil
import subprocess
import sys
from pathlib import Path


def find_cmake():
    """The one beside this interpreter (the cmake package) or the system's."""
    beside = Path(sys.executable).parent
    return shutil.which("cmake", path=f"{beside}{os.pathsep}{os.environ.get('PATH', os.defpath)}")


def call(*arguments):
    done = subprocess.run([str(a) for a in arguments], capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{arguments}\n{done.stdout}\n{done.stderr}"
    return done.stdout
