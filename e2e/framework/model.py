"""Puts the tiny model on the suite's claim: trained once per machine, because training takes minutes."""

import base64
import io
import tarfile
from pathlib import Path

from e2e.framework import jobs, manifests
from e2e.framework.cluster import Cluster, say
from sluice_engine import tiny

_JOB = "model"
_WHOLE = "/tmp/whole"  # exists once the model is unpacked
_UNPACK = f"""
import base64, io, sys, tarfile
packed = io.BytesIO(base64.b64decode(sys.stdin.read()))
tarfile.open(fileobj=packed).extractall({manifests.MODEL!r})
open({_WHOLE!r}, "w").close()
"""


def make(cluster: Cluster, engine_image: str) -> None:
    """Copy the model into a Job, which then writes the references of its answers beside it. Raises JobFailed."""
    folder = tiny.ensure()
    refer = f"{manifests.PYTHON} {manifests.PROGRAMS}/references.py"
    refer += f" {manifests.MODEL} {manifests.REFERENCES} {manifests.PROMPTS}"
    command = ["sh", "-c", f"until [ -e {_WHOLE} ]; do sleep 0.2; done; exec {refer}"]
    jobs.start(cluster, manifests.client_job(_JOB, engine_image, command, writable=True, memory="2Gi"))
    unpack = ("--", manifests.PYTHON, "-c", _UNPACK)
    cluster.kubectl("exec", "-i", f"job/{_JOB}", *unpack, stdin=_packed(folder))
    jobs.wait_until_done(cluster, _JOB, timeout=300)
    say(written(cluster)["said"])


def written(cluster: Cluster) -> jobs.Account:
    """What inpod/references.py wrote: a question, its answer, and how many references there are."""
    return jobs.account_of(cluster, _JOB)


def _packed(folder: Path) -> str:
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w:gz") as archive:
        for file in sorted(folder.iterdir()):
            archive.add(file, arcname=file.name)
    return base64.b64encode(packed.getvalue()).decode()
