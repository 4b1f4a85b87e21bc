"""Settling a step: its tokens are delivered, complete requests end, and a failure ends only the requests that failed."""

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence

from sluice_engine.control.smoothing import smoothed
from sluice_engine.request import Request
from sluice_engine.scheduler.plan import Finish, Outcome, Plan, Row
from sluice_engine.scheduler.policies.tenants import OUTPUT_WEIGHT
from sluice_engine.scheduler.state import SchedulerState
from sluice_engine.scheduler.transitions import end, preempt


class StepSettler:
    """Books the results of a step that ended at `now`."""

    def __init__(self, state: SchedulerState, now: float) -> None:
        self._state, self._requests, self._tables = state, state.requests, state.tables
        self._now = now
        self.outcomes: list[Outcome] = []
        self._charges: defaultdict[str, int] = defaultdict(int)  # tokens by tenant, charged at the end of the step
        config = state.config
        self._size, self._longest, self._slides = config.block_size, config.max_model_length, config.window is not None

    def step(self, plan: Plan, sampled: Sequence[int], errors: Mapping[str, str], accepted: Mapping[str, int]) -> None:
        """All rows of a plan. `sampled` has one token per sampling row, in order; `accepted` gives the number of accepted
        draft tokens before it, by request."""
        tokens = iter(sampled)
        if errors:
            self._restart_dependents(plan, errors)
        if errors or not plan.plain:
            for row in plan.rows:
                self._row(plan, row, tokens, errors, accepted)
        else:
            self._plain(plan, tokens)
        if plan.deadline is not None and plan.cut_tokens:
            self._cut(plan.rows[-1], plan.deadline.indexed_blocks, plan.cut_tokens)
        self.charge()
        self._tables.end_step(errors)
        self._learn_overrun(plan)

    def _plain(self, plan: Plan, tokens: Iterator[int]) -> None:
        """Rows that compute their tokens and sample one, or none. The engine's other hot loop."""
        requests, step, continue_output = self._requests, plan.step, self.continue_output
        for row in plan.rows:
            token = next(tokens) if row.samples else None
            request = requests.get(row.request_id)
            if request is None or request.started_step is None or request.started_step > step:  # not `ran_in`
                continue
            end = row.start + len(row.tokens)
            if token is None or not continue_output(request, end, token):
                self.computed(request, end, token)

    def continue_output(self, request: Request, end: int, token: int) -> bool:
        """One more token in the middle of an output, which is what most rows of most steps are: `computed` without the
        cases that cannot occur there. False, and nothing done, where one may occur. Call `charge` at the end."""
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
            self._tables.index(request)
        if self._slides:
            self._tables.release_outside_window(request)
        known.append(token)
        self._charges[request.tenant] += 1
        gap = self._now - last
        # The constructor's own function counts its arguments as Outcome() does, in two thirds of the time.
        outcome = Outcome.__new__(
            Outcome, request.request_id, (token,), None, None, False, request.cached_tokens, 0.0, gap
        )
        self.outcomes.append(outcome)
        request.last_token_at = self._now
        return True

    def charge(self) -> None:
        """Charge the tokens of `continue_output` to their tenants."""
        for tenant, count in self._charges.items():
            self._state.counters.charge(tenant, OUTPUT_WEIGHT * count)
        self._charges.clear()

    def _row(
        self, plan: Plan, row: Row, tokens: Iterator[int], errors: Mapping[str, str], accepted: Mapping[str, int]
    ) -> None:
        """Any row, and the forks that share its logits."""
        for name in row.sampled_ids if row.forks else (row.request_id,):
            token = next(tokens) if row.samples else None
            request = self._requests.get(name)
            if request is None or not ran_in(request, plan.step):
                continue
            if name in errors:
                self.fail(request, errors[name])
            elif row.drafts and token is not None:
                self._verified(request, row, accepted.get(name, 0), token)
            else:
                self.computed(request, row.start + len(row.tokens), token)

    def _cut(self, chunk: Row, indexed: Sequence[int], cut_tokens: int) -> None:
        """`cut_tokens` after the chunk were planned and not computed: their blocks are unindexed, and released unless the
        request has ended meanwhile."""
        tables, end = self._tables, chunk.start + len(chunk.tokens)
        tables.unindex(indexed, end + cut_tokens, end)
        request = self._requests.get(chunk.request_id)
        if request is not None and request.computed == end:
            tables.trim(request)

    def computed(self, request: Request, end: int, token: int | None) -> None:
        """The request's first `end` tokens are cached; `token` was sampled after the last known one."""
        request.computed = end
        if request.pending:
            request.known.pop()
            request.pending = False
        self._tables.index(request)
        self._tables.release_outside_window(request)
        scored = min(end - request.scored, request.unscored)
        request.scored += max(0, scored)
        if request.pooling:
            self._report(request, (), "stop", None)
            self._complete(request)
        elif token is not None:
            self._deliver(request, token)
        elif scored > 0:
            self._report(request, (), None, None)

    def _verified(self, request: Request, row: Row, accepted: int, token: int) -> None:
        """The accepted drafts are known and computed from now on; the others are dropped."""
        state, tables = self._state, self._tables
        state.speculation.settle(request.request_id, row.drafts, accepted)
        drafts = row.tokens[len(row.tokens) - row.drafts :]
        kept = drafts[:accepted]
        stop = next((place for place, each in enumerate(kept) if each in request.stop_ids), None)
        if stop is not None:
            kept, token = kept[:stop], kept[stop]
        request.known += kept
        request.computed += len(row.tokens) - row.drafts + len(kept)
        state.counters.charge(request.tenant, OUTPUT_WEIGHT * len(kept))
        tables.trim(request)
        tables.index(request)
        tables.release_outside_window(request)
        self._deliver(request, token, kept)

    def fail(self, request: Request, error: str) -> None:
        """The request ends with this message; what it computed is not reused."""
        self._report(request, (), "error", error)
        end(self._state, request, forget=True)

    def _deliver(self, request: Request, token: int, before: tuple[int, ...] = ()) -> None:
        """One more token; those `before` it came in the same step and are known already."""
        state = self._state
        if request.steered:
            self._report(request, (token,), None, None)
            request.last_token_at = self._now
            return
        if token in request.stop_ids:
            self._report(request, before, "stop", None)
            self._complete(request)
            return
        request.known.append(token)
        state.counters.charge(request.tenant, OUTPUT_WEIGHT)
        complete = state.is_complete(request)
        self._report(request, (*before, token), "length" if complete else None, None)
        request.last_token_at = self._now
        if complete:
            self._complete(request)
        elif request.generated == 1:
            state.speculation.join(request)

    def _complete(self, request: Request) -> None:
        """A request finished: update the means of residence, output and prompt."""
        state = self._state
        if request.first_scheduled_at is not None:
            state.residence = smoothed(state.residence, self._now - request.first_scheduled_at)
            if not request.pooling:
                state.finished += 1
                state.mean_output = smoothed(state.mean_output, float(request.generated))
                uncached = request.prompt_length - request.cached_tokens
                state.mean_prompt = smoothed(state.mean_prompt, float(uncached))
                state.lengths.add(request.tenant, request.generated)
        end(state, request, forget=False)

    def _report(self, request: Request, token_ids: tuple[int, ...], finish: Finish | None, error: str | None) -> None:
        now, first, last, started = self._now, not request.delivered, request.last_token_at, request.first_scheduled_at
        request.delivered = True
        if request.prompt_tag:
            self._tables.log_prompt(request)
        waited = max(0.0, (now if started is None else started) - request.arrived_at) if first else 0.0
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

    def _restart_dependents(self, plan: Plan, errors: Mapping[str, str]) -> None:
        """Requests that started from blocks which a failed request was to fill are recomputed, those of the next step
        too."""
        failed = set(errors)
        for request_id, other in (*plan.dependencies, *self._state.pending_dependencies):
            if other in failed:  # in order of starting, so a chain of them is followed to its end
                failed.add(request_id)
        for request_id in failed - errors.keys():
            request = self._requests.get(request_id)
            if request is not None and request.started_step is not None:
                preempt(self._state, request, forget=True)

    def _learn_overrun(self, plan: Plan) -> None:
        """The least gap of the step's tokens is this step's time; others waited longer for other reasons. Only steps that
        a target bounded count: the model's error on whole prompts does not apply to them."""
        state, model = self._state, self._state.model
        if plan.draft_tokens or not plan.work.prefill_tokens or not plan.timed or model is None:
            return
        gaps = [outcome.gap for outcome in self.outcomes if outcome.gap is not None]
        if gaps:
            state.correction.observe(min(gaps), model.predict(plan.work))
        if gaps and plan.cut_tokens and plan.deadline is not None:
            state.overshoot.observe(min(gaps), plan.deadline.seconds)


def ran_in(request: Request, step: int) -> bool:
    """Whether a row of this step's plan belongs to the request as it runs now: not if it has stopped, or restarted,
    since."""
    return request.started_step is not None and request.started_step <= step
