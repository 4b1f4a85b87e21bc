"""The YAML file that is simulated. Unlike `sluice up`, nothing that it names has to exist on this machine."""

from pathlib import Path
from typing import Final

import yaml

from sluice import contract
from sluice_operator.api import InvalidResource, LLMDeploymentSpec, parse

MAX_BYTES: Final = 1024 * 1024


class BadFile(ValueError):
    """The file holds no valid LLMDeployment. `faults` has one sentence per fault."""

    def __init__(self, faults: tuple[str, ...]) -> None:
        super().__init__("; ".join(faults))
        self.faults = faults


def read_spec(path: Path) -> LLMDeploymentSpec:
    """The spec of the one LLMDeployment in a file; documents of other kinds are left alone.

    Raises BadFile; OSError where the file cannot be read.
    """
    with path.open("rb") as file:
        content = file.read(MAX_BYTES + 1)
    if len(content) > MAX_BYTES:
        raise BadFile((f"{path}: it is over {MAX_BYTES} bytes",))
    try:
        documents = [one for one in yaml.safe_load_all(content.decode()) if one is not None]
    except (yaml.YAMLError, UnicodeDecodeError, ValueError, RecursionError) as error:
        raise BadFile((f"{path}: it is not YAML: {' '.join(str(error).split()) or 'it nests too deep'}",)) from error
    ours = [one for one in documents if isinstance(one, dict) and one.get("kind") == contract.KIND]
    if len(ours) != 1:
        raise BadFile((f"{path}: expected one {contract.KIND}, found {len(ours)}",))
    try:
        return parse(ours[0]).spec
    except InvalidResource as error:
        raise BadFile(error.faults) from error
