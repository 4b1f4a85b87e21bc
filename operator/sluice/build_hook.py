"""Hatch's hook: compiles the processor's kernels into a wheel or an editable install.

No compiler, or one that fails, is a warning and never an error: the engine computes the same with torch then. It
stands here, and not beside the kernel, because every image has this folder and hatch wants its hook.
"""

import subprocess
import sys
import sysconfig
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

LIBRARY = "engine/sluice_engine/_native/libsluice_cpu.so"


class NativeBuildHook(BuildHookInterface):
    """Puts the library into the wheel, which is then one platform's; or says why it is left out."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Runs before a wheel or an editable install is put together."""
        if self.target_name != "wheel":
            return
        script = Path(self.root) / "engine" / "native" / "build.py"
        if not script.is_file():  # the operator's image: no engine in it
            return
        done = subprocess.run([sys.executable, str(script)], capture_output=True, text=True, check=False)
        if done.returncode != 0:
            self.app.display_warning(f"sluice: the compiled kernels for processors are left out: {done.stderr.strip()}")
            return
        build_data["artifacts"].append(LIBRARY)
        build_data["pure_python"] = False
        build_data["tag"] = f"py3-none-{sysconfig.get_platform().replace('-', '_').replace('.', '_')}"
