"""Who decodes at a coarse engine: a token each per step, so that only ends need to be looked at one by one."""

from heapq import heappop, heappush

from sluice_sim.coarse_queue import Job


class Decoding:
    """Jobs by the step that ends them."""

    __slots__ = ("_begun", "_ends", "_entries", "_steps", "context", "count")

    def __init__(self) -> None:
        self.count = 0  # jobs
        self.context = 0  # their computed tokens
        self._steps = 0  # each gave every one of them a token
        self._begun = 0  # Σ begun over jobs
        self._ends: list[tuple[int, int, Job]] = []  # a heap; some of its jobs decode no more
        self._entries = 0

    @property
    def written(self) -> float:
        """Tokens that one of them has written, on the mean."""
        return self._steps - self._begun / self.count if self.count else 0.0

    def add(self, job: Job) -> None:
        """Its prompt is computed and its first token given."""
        job.decoding, job.begun, job.ends = True, self._steps, self._steps + job.left
        self.count += 1
        self.context += job.computed
        self._begun += job.begun
        self._entries += 1
        heappush(self._ends, (job.ends, self._entries, job))

    def remove(self, job: Job) -> None:
        """It decodes no more: book what it wrote."""
        written = self._steps - job.begun
        job.decoding = False
        job.computed += written
        job.left -= written
        self.count -= 1
        self.context -= job.computed
        self._begun -= job.begun

    def steps_to_end(self) -> int:
        """Steps up to the first that ends one. Raises IndexError where nobody decodes."""
        ends, _, job = self._ends[0]
        while not job.decoding or job.ends != ends:  # it was preempted since
            heappop(self._ends)
            ends, _, job = self._ends[0]
        return ends - self._steps

    def advance(self, count: int) -> list[Job]:
        """So many steps pass, at most up to the first end; returns who ends and is in here no more."""
        self._steps = steps = self._steps + count
        self.context += self.count * count
        ended, ends = [], self._ends
        while ends and ends[0][0] <= steps:
            _, _, job = heappop(ends)
            if job.decoding and job.ends <= steps:
                self.remove(job)
                ended.append(job)
        return ended
