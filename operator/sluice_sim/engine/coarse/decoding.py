"""The decoding requests of a coarse engine. Each gets one token per step, so only ends are handled one by one."""

from heapq import heappop, heappush

from sluice_sim.engine.coarse.waiting_queue import CoarseRequest


class Decoding:
    """Decoding jobs, ordered by the step that finishes them."""

    __slots__ = ("_begun", "_ends", "_entries", "_steps", "context", "count")

    def __init__(self) -> None:
        self.count = 0  # jobs
        self.context = 0  # computed tokens of all jobs
        self._steps = 0  # decode steps taken
        self._begun = 0  # Σ begun over jobs
        self._ends: list[
            tuple[int, int, CoarseRequest]
        ] = []  # heap of (ends, entry, job), with stale entries of removed jobs
        self._entries = 0

    @property
    def written(self) -> float:
        """Mean number of tokens that a decoding job has generated."""
        return self._steps - self._begun / self.count if self.count else 0.0

    def add(self, job: CoarseRequest) -> None:
        """Add a job whose prompt is computed and whose first token is generated. O(log n)."""
        job.decoding, job.begun, job.ends = True, self._steps, self._steps + job.left
        self.count += 1
        self.context += job.computed
        self._begun += job.begun
        self._entries += 1
        heappush(self._ends, (job.ends, self._entries, job))

    def remove(self, job: CoarseRequest) -> None:
        """Remove a job and add its generated tokens to `computed`. Its heap entry becomes stale."""
        written = self._steps - job.begun
        job.decoding = False
        job.computed += written
        job.left -= written
        self.count -= 1
        self.context -= job.computed
        self._begun -= job.begun

    def steps_to_end(self) -> int:
        """Number of steps up to the first that finishes a job. Raises IndexError if no job decodes."""
        ends, _, job = self._ends[0]
        while not job.decoding or job.ends != ends:  # stale: the job was preempted
            heappop(self._ends)
            ends, _, job = self._ends[0]
        return ends - self._steps

    def advance(self, count: int) -> list[CoarseRequest]:
        """Take `count` steps, at most `steps_to_end()`. Returns the finished jobs, which are removed."""
        self._steps = steps = self._steps + count
        self.context += self.count * count
        ended, ends = [], self._ends
        while ends and ends[0][0] <= steps:
            _, _, job = heappop(ends)
            if job.decoding and job.ends <= steps:
                self.remove(job)
                ended.append(job)
        return ended
