"""A plugin of pytest under xdist: the last worker runs the files whose tests wait most of their time, beside the others.

The processors are free while such a test waits for a timeout or for an operator's next attempt. More workers for all tests
would make tests that compute compete with each other.
"""

from typing import Final

import pytest
from xdist.remote import Producer
from xdist.scheduler.loadfile import LoadFileScheduling
from xdist.workermanage import WorkerController

# Files, or folders that end with a slash.
WAITING: Final = (
    "tests/kube/",
    "tests/ecosystem/test_hpa.py",
    "tests/gateway/test_resume.py",
    "tests/gateway/http/test_same_answers.py",
    "tests/engine/core/test_process_faults.py",
    "tests/engine/server/test_process.py",
    "tests/operator/cluster/local/",
)


class WaitingBeside(LoadFileScheduling):
    """Gives files of WAITING to the last worker and all others to the other ones, which take what it has not begun."""

    def _assign_work_unit(self, node: WorkerController) -> None:
        is_last = self._is_last(node)
        scope = next((each for each in self.workqueue if each.startswith(WAITING) == is_last), None)
        if scope is not None:
            self.workqueue.move_to_end(scope, last=False)
        super()._assign_work_unit(node)

    def _reschedule(self, node: WorkerController) -> None:
        if self._is_last(node) and not any(each.startswith(WAITING) for each in self.workqueue):
            if not node.shutting_down:
                node.shutdown()  # it ends after the tests that it has
            return
        super()._reschedule(node)

    def _is_last(self, node: WorkerController) -> bool:
        return self.numnodes > 1 and node.gateway.id == f"gw{self.numnodes - 1}"


def pytest_xdist_make_scheduler(config: pytest.Config, log: Producer) -> WaitingBeside:
    """In place of --dist."""
    return WaitingBeside(config, log)
