"""One step's results while they are booked: tokens delivered, requests ended, failures kept to those that failed."""

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from sluice_engine.request import Request
from sluice_engine.scheduler.moves import end, preempt
from sluice_engine.scheduler.plan import Finish, Outcome, Plan, Row
from sluice_engine.scheduler.smoothing import smoothed
from sluice_engine.scheduler.tenants import OUTPUT_WEIGHT

if TYPE_CHECKING:
    from sluice_engine.scheduler.scheduler import Scheduler


_made = tuple.__new__  # a named tuple without its own constructor, which takes three times as long


class StepSettler:
    """Books what a step that ended at `now` brought."""

    def __init__(self, scheduler: "Scheduler", now: float) -> None:
        self._scheduler, self._requests = scheduler, scheduler.requests
        self._now = now
        self.outcomes: list[Outcome] = []
        self._charges: defaultdict[str, int] = defaultdict(int)  # tokens by tenant, charged at the end of the step
        config = scheduler.config
        self._size, self._longest, self._slides = config.block_size, config.max_model_length, config.window is not None

    def step(self, plan: Plan, sampled: Sequence[int], errors: Mapping[str, str], accepted: Mapping[str, int]) -> None:
        """All rows of a plan. `sampled` has one token per sampling row, in order; `accepted` says of how many draft
        tokens, by request, that token comes behind."""
        tokens = iter(sampled)
        if errors:
            self._take_back(plan, errors)
        if errors or not plan.plain:
            for row in plan.rows:
                self._row(plan, row, tokens, errors, accepted)
        else:
            self._plain(plan, tokens)
        if plan.deadline is not None and plan.given_up:
            self._give_up(plan.rows[-1], plan.deadline.promised, plan.given_up)
        self.charge()
        self._scheduler.books.end_step(errors)
        self._learn_overrun(plan)

    def _plain(self, plan: Plan, tokens: Iterator[int]) -> None:
        """Rows that compute their tokens and sample one, or none. The engine's other hot loop."""
        requests, step, goes_on = self._requests, plan.step, self.goes_on
        for row in plan.rows:
            token = next(tokens) if row.samples else None
            request = requests.get(row.request_id)
            if request is None or request.begun is None or request.begun > step:  # not `ran_in`
                continue
            end = row.start + len(row.tokens)
            if token is None or not goes_on(request, end, token):
                self.computed(request, end, token)

    def goes_on(self, request: Request, end: int, token: int) -> bool:
        """One more token in the middle of an answer, which is what most rows of most steps are: `computed`, with all
        that cannot be the case there left out. False, and nothing done, where it may be. Call `charge` at the end."""
        last = request.last_token_at
        if last is None or request.steered or token in request.stop_ids:
            return False
        after = end + 1
        if after >= self._longest or after >= request.prompt_length + request.max_tokens:
            return False
        known = request.known
        request.computed = end
        if request.pending:
            known.pop()
            request.pending = False
        if end // self._size > request.indexed:
            self._scheduler.books.index(request)
        if self._slides:
            self._scheduler.books.slide(request)
        known.append(token)
        self._charges[request.tenant] += 1
        said = request.request_id, (token,), None, None, False, request.cached_tokens, 0.0, self._now - last
        self.outcomes.append(_made(Outcome, said))
        request.last_token_at = self._now
        return True

    def charge(self) -> None:
        """Book the tokens of answers that went on to those whose they are."""
        for tenant, count in self._charges.items():
            self._scheduler.counters.charge(tenant, OUTPUT_WEIGHT * count)
        self._charges.clear()

    def _row(
        self, plan: Plan, row: Row, tokens: Iterator[int], errors: Mapping[str, str], accepted: Mapping[str, int]
    ) -> None:
        """Any row, and those that share its logits."""
        for name in row.choosers if row.twins else (row.request_id,):
            token = next(tokens) if row.samples else None
            request = self._scheduler.requests.get(name)
            if request is None or not ran_in(request, plan.step):
                continue
            if name in errors:
                self.fail(request, errors[name])
            elif row.drafts and token is not None:
                self._verified(request, row, accepted.get(name, 0), token)
            else:
                self.computed(request, row.start + len(row.tokens), token)

    def _give_up(self, chunk: Row, promised: Sequence[int], given_up: int) -> None:
        """So many tokens behind the chunk were planned and not computed: nobody finds their blocks, and who ran the
        chunk gives them back. It may have left meanwhile."""
        books, end = self._scheduler.books, chunk.start + len(chunk.tokens)
        books.unpromise(promised, end + given_up, end)
        request = self._requests.get(chunk.request_id)
        if request is not None and request.computed == end:
            books.trim(request)

    def computed(self, request: Request, end: int, token: int | None) -> None:
        """The request's first `end` tokens are cached; `token` was sampled after the last known one."""
        request.computed = end
        if request.pending:
            request.known.pop()
            request.pending = False
        self._scheduler.books.index(request)
        self._scheduler.books.slide(request)
        if request.whole:
            self._say(request, (), "stop", None)
            self._complete(request)
        elif token is not None:
            self._deliver(request, token)

    def _verified(self, request: Request, row: Row, accepted: int, token: int) -> None:
        """The accepted drafts are known and computed from now on; the others never were."""
        self._scheduler.speculation.settle(request.request_id, row.drafts, accepted)
        drafts = row.tokens[len(row.tokens) - row.drafts :]
        said = drafts[:accepted]
        stop = next((place for place, each in enumerate(said) if each in request.stop_ids), None)
        if stop is not None:
            said, token = said[:stop], said[stop]
        request.known += said
        request.computed += len(row.tokens) - row.drafts + len(said)
        self._scheduler.counters.charge(request.tenant, OUTPUT_WEIGHT * len(said))
        self._scheduler.books.trim(request)
        self._scheduler.books.index(request)
        self._scheduler.books.slide(request)
        self._deliver(request, token, said)

    def fail(self, request: Request, error: str) -> None:
        """The request ends with this sentence; what it computed is trusted by nobody."""
        self._say(request, (), "error", error)
        end(self._scheduler, request, forget=True)

    def _deliver(self, request: Request, token: int, before: tuple[int, ...] = ()) -> None:
        """One more token; those `before` it came in the same step and are known already."""
        scheduler = self._scheduler
        if request.steered:
            self._say(request, (token,), None, None)
            request.last_token_at = self._now
            return
        if token in request.stop_ids:
            self._say(request, before, "stop", None)
            self._complete(request)
            return
        request.known.append(token)
        scheduler.counters.charge(request.tenant, OUTPUT_WEIGHT)
        full = scheduler.full(request)
        self._say(request, (*before, token), "length" if full else None, None)
        request.last_token_at = self._now
        if full:
            self._complete(request)
        elif request.generated == 1:
            scheduler.speculation.join(request)

    def _complete(self, request: Request) -> None:
        """An answer is complete: learn how long it ran and how much it wrote."""
        scheduler = self._scheduler
        if request.first_scheduled_at is not None:
            scheduler.residence = smoothed(scheduler.residence, self._now - request.first_scheduled_at)
            if not request.whole:
                scheduler.mean_output = smoothed(scheduler.mean_output, float(request.generated))
                uncached = request.prompt_length - request.cached_tokens
                scheduler.mean_prompt = smoothed(scheduler.mean_prompt, float(uncached))
                scheduler.lengths.add(request.tenant, request.generated)
        end(scheduler, request, forget=False)

    def _say(self, request: Request, token_ids: tuple[int, ...], finish: Finish | None, error: str | None) -> None:
        now, first, last, begun = self._now, not request.delivered, request.last_token_at, request.first_scheduled_at
        request.delivered = True
        waited = max(0.0, (now if begun is None else begun) - request.arrived_at) if first else 0.0
        gap = None if last is None else now - last
        # By position: names cost as much again, and there is one of these for each token of the engine.
        self.outcomes.append(
            Outcome(
                request.request_id,
                token_ids,
                finish,
                error,
                first,
                request.cached_tokens,
                waited,
                gap,
            )
        )

    def _take_back(self, plan: Plan, errors: Mapping[str, str]) -> None:
        """Requests that began from blocks which a failed request was to fill begin anew, those of the next step too."""
        failed = set(errors)
        for request_id, other in (*plan.leans, *self._scheduler.leans_ahead):
            if other in failed:  # in order of starting, so a chain of them is followed to its end
                failed.add(request_id)
        for request_id in failed - errors.keys():
            request = self._scheduler.requests.get(request_id)
            if request is not None and request.begun is not None:
                preempt(self._scheduler, request, forget=True)

    def _learn_overrun(self, plan: Plan) -> None:
        """A stream's least gap is this step alone; others waited longer for other reasons. Only steps that a target
        bounded teach: what the model gets wrong about whole prompts at once says nothing about them."""
        model = self._scheduler.model
        if plan.draft_tokens or not plan.work.prefill_tokens or not plan.timed or model is None:
            return
        gaps = [outcome.gap for outcome in self.outcomes if outcome.gap is not None]
        if gaps:
            self._scheduler.correction.observe(min(gaps), model.predict(plan.work))
        if gaps and plan.given_up and plan.deadline is not None:
            self._scheduler.overshoot.observe(min(gaps), plan.deadline.seconds)


def ran_in(request: Request, step: int) -> bool:
    """Whether a row of the plan of this step is of the request as it runs now: not if it has left since, or begun
    again."""
    return request.begun is not None and request.begun <= step
