"""Hatch build hook that compiles the CPU kernels into a wheel or an editable install.

A missing or failing compiler causes a warning and no error: the engine then computes the same with torch. The hook is
in this folder and not beside the kernel, because every image has this folder and hatch requires its hook.
"""

import subprocess
import sys
import sysconfig
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

LIBRARY = "engine/sluice_engine/_native/libsluice_cpu.so"


class NativeBuildHook(BuildHookInterface):
    """Adds the library to the wheel, which then is platform-specific, or warns why it is left out."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Called before a wheel or an editable install is built."""
        if self.target_name != "wheel":
            return
        script = Path(self.root) / "engine" / "native" / "build.py"
        if not script.is_file():  # the operator's image contains no engine
            return
        done = subprocess.run([sys.executable, str(script)], capture_output=True, text=True, check=False)
        if done.returncode != 0:
            self.app.display_warning(f"sluice: the compiled kernels for processors are left out: {done.stderr.strip()}")
            return
        build_data["artifacts"].append(LIBRARY)
        build_data["pure_python"] = False
        build_data["tag"] = f"py3-none-{sysconfig.get_platform().replace('-', '_').replace('.', '_')}"
