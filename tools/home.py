"""Where Kernelwright keeps its data: runs, caches and measured ceilings of this user."""

import os
from pathlib import Path

from platformdirs import user_data_path


def home() -> Path:
    """`KERNELWRIGHT_HOME`, else the user's data folder of this platform; not created here."""
    chosen = os.environ.get("KERNELWRIGHT_HOME")
    return Path(chosen).expanduser() if chosen else user_data_path("kernelwright")
