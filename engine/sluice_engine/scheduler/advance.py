"""k decode-only steps at once: what lets the simulator live through a day in seconds.

While every running request decodes, nobody can be admitted and no request ends, one step is like the next: each
request gains a token, and blocks are taken as they fill. `advance(k)` does that in one go, block growth included.
"""

from collections.abc import Mapping, Sequence
from types import MappingProxyType

from sluice_engine.scheduler.plan import Outcome
from sluice_engine.scheduler.scheduler import Scheduler
from sluice_engine.scheduler.settler import StepSettler
from sluice_engine.scheduler.tenants import OUTPUT_WEIGHT
from sluice_law.steptime import StepWork


def steady_steps(scheduler: Scheduler, until: int | None = None) -> int:
    """The most steps that `advance` may take now: 0 unless all that runs decodes and nothing waiting can start; `until`
    where the caller knows that so many are enough, because a stop token comes in the last of them.

    Nobody is preempted and nobody ends before the last of them. A waiting request that blocks keep out stays out,
    because blocks only become fewer (provided that generated tokens do not extend its own prefix), and so does one
    that the predicted peak keeps out, until somebody ends.
    """
    running, longest, groups = scheduler.running, scheduler.config.max_model_length, scheduler.config.groups
    most = longest if until is None else until
    for request in reversed(running):  # the newest first: it is the likeliest to have a prompt to compute
        known = len(request.known)
        if known - request.computed != 1 or request.forked:
            return 0
        most = min(most, longest - known, request.prompt_length + request.max_tokens - known)
    if not running or most <= 0:
        return 0
    if scheduler.waiting and len(running) < scheduler.places:
        if scheduler.policy.patience is not None or scheduler.policy.by_tenant:
            return 0  # who is at the head changes as time passes and tokens are delivered
        head = scheduler.waiting.head(now=0.0)
        if head is None or head.late or scheduler.fitting.fits(head.request, scheduler.books.match(head.request)):
            return 0
    window, size = scheduler.config.window, scheduler.config.block_size
    if window is not None:  # the step in which a block leaves a window is the last one
        most = min(most, *((r.gone + 1) * size + window - 1 - r.computed for r in running))
    if len(running) * (most // size + 1) * groups <= scheduler.pool.available:  # no need to look at each
        return most
    if _blocks_wanted(scheduler, most) <= scheduler.pool.available:
        return most
    low, high = 0, most  # growth is monotone in k: bisect for the last k that fits
    while high - low > 1:
        middle = (low + high) // 2
        if _blocks_wanted(scheduler, middle) <= scheduler.pool.available:
            low = middle
        else:
            high = middle
    return low


def steady_work(scheduler: Scheduler) -> StepWork:
    """The first such step's work; each later one reads `sequences` more KV tokens."""
    return StepWork(
        sequences=len(scheduler.running), kv_tokens=sum(request.computed + 1 for request in scheduler.running)
    )


def advance(
    scheduler: Scheduler,
    ends_at: Sequence[float],
    token: int = 0,
    last: Mapping[str, int] = MappingProxyType({}),
) -> list[Outcome]:
    """Take `len(ends_at)` ≤ `steady_steps` decode-only steps, step i ending at `ends_at[i]`, each sampling `token` for
    every request; in the last one those in `last` sample another. Returns the last step's outcomes. Raises ValueError
    for more steps than are steady."""
    count = len(ends_at)
    if not 0 < count <= steady_steps(scheduler, count):
        raise ValueError(f"{count} steps asked, {steady_steps(scheduler)} are steady")
    if count > 1:
        _decode_before_last(scheduler, count - 1, ends_at[-2], token)
    _grow(scheduler, count)
    return _decode_last(scheduler, count, ends_at[-1], token, last)


def _decode_before_last(scheduler: Scheduler, steps: int, now: float, token: int) -> None:
    """So many steps, in which nobody ends; without their blocks."""
    tokens, charges = [token] * steps, dict[str, int]()
    for request in scheduler.running:
        request.known += tokens
        request.computed += steps
        request.last_token_at, request.delivered = now, True
        charges[request.tenant] = charges.get(request.tenant, 0) + steps
    for tenant, count in charges.items():
        scheduler.counters.charge(tenant, OUTPUT_WEIGHT * count)


def _grow(scheduler: Scheduler, count: int) -> None:
    """The blocks of `count` steps, all but the last of which were decoded. They are taken and indexed in the order in
    which single steps would: of two with equal content the one that was full first is found, unless it was evicted by
    then."""
    size, groups = scheduler.config.block_size, scheduler.config.groups
    before, shares = count - 1, scheduler.config.prefix_cache and count > 1
    events: list[tuple[int, bool, int, int]] = []  # (step, whether blocks became full in it, place in running, stretch)
    for place, request in enumerate(scheduler.running):
        computed, table = request.computed, len(request.blocks) // groups
        begun = computed - before
        if computed >= table * size:
            taken = range(table, computed // size + 1)
            events += [(stretch * size - begun + 1, False, place, stretch) for stretch in taken]
        if shares and computed // size > begun // size:
            full = range(begun // size, computed // size)
            events += [((stretch + 1) * size - begun, True, place, stretch) for stretch in full]
    for _, became_full, place, stretch in sorted(events):
        request = scheduler.running[place]
        if became_full:
            scheduler.books.index_stretch(request, stretch)
        else:
            request.blocks += scheduler.pool.allocate(groups)


def _decode_last(scheduler: Scheduler, steps: int, now: float, token: int, last: Mapping[str, int]) -> list[Outcome]:
    """The last of so many steps, the others of which were taken: what can end, ends here."""
    scheduler.books.planned = scheduler.books.settled = scheduler.steps + steps
    settler = StepSettler(scheduler, now)
    for request in list(scheduler.running):
        end, sampled = request.computed + 1, last.get(request.request_id, token)
        if not settler.goes_on(request, end, sampled):
            settler.computed(request, end, sampled)
    settler.charge()
    return settler.outcomes


def _blocks_wanted(scheduler: Scheduler, steps: int) -> int:
    wanted = scheduler.books.blocks_for
    return sum(wanted(r.computed + steps) - len(r.blocks) for r in scheduler.running)
