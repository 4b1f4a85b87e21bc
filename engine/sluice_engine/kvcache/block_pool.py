"""The paged KV cache's block pool: reference counts, the prefix index of full blocks, and the order of eviction.

A block is in one of three states: *held* (referenced by at least one block table), *cached* (no reference, but its
content is indexed and may be hit), *free*. Full blocks are found by chained SHA-256 over (parent hash, tokens), so a
hit on block i implies equal tokens in blocks 0..i; SHA-256 because collisions would leak one prompt's state into
another. Cached blocks are evicted least recently used; a sequence releases its tail first, so tails are evicted first.

Layers with full attention and layers with a sliding window are cached apart, in *groups* of equally many layers. A
*logical block* is `block_size` consecutive tokens of a sequence, and one pool block holds it for the layers of one group.
All groups share this one pool, because short and long texts need the two kinds in different proportions (the idea is
vLLM's hybrid KV cache). A block table lists, for each logical block, one pool block per group in turn; with one group
it is the plain table. A sliding group's entry is a HOLE after the block was released because it is outside the window.
Every function here skips HOLEs.

A released block may be allocated at once. The caller of `release` makes sure that no step still writes it.
"""

import hashlib
from array import array
from collections import Counter, OrderedDict
from collections.abc import Iterable, Sequence

from sluice_engine.kvcache.event_log import EventLog

HOLE = -1  # in a block table: no block, because no layer of the group attends so far back
_ROOT = hashlib.sha256(b"sluice prefix index").digest()


def chain_hash(parent: bytes | None, tokens: Sequence[int]) -> bytes:
    """The identity of a full block: SHA-256 over its parent's identity (None: first block) and its tokens."""
    return hashlib.sha256((parent or _ROOT) + array("q", tokens).tobytes()).digest()


def extend_hashes(
    hashes: list[bytes], tokens: Sequence[int], block_size: int, tenant: str = "", salt: str = ""
) -> None:
    """Append the identities of full blocks of `tokens` that `hashes` does not have yet. Chains of different tenants
    have different roots: a tenant can neither use nor detect what another one has cached. So have those of different
    salts of one tenant."""
    for block in range(len(hashes), len(tokens) // block_size):
        parent = hashes[-1] if hashes else _root_of(tenant, salt)
        hashes.append(chain_hash(parent, tokens[block * block_size : (block + 1) * block_size]))


def first_seen(position: int, window: int | None, block_size: int) -> int:
    """The first block that the token at `position` attends to, in a layer with a window of `window` tokens, its own
    included."""
    return 0 if window is None else max(0, position - window + 1) // block_size


def group_digest(digest: bytes, group: int) -> bytes:
    """The identity of a full block of this group of layers, by that of its logical block."""
    return digest + group.to_bytes(2) if group else digest


def _root_of(tenant: str, salt: str) -> bytes:
    root = hashlib.sha256(_ROOT + tenant.encode()).digest() if tenant else _ROOT
    return hashlib.sha256(root + b"salt" + salt.encode()).digest() if salt else root


class BlockPool:
    """`num_blocks` pages of `block_size` tokens with reference counts and a prefix index.

    `allocate` and `release` are the only ways for a block to gain its first and lose its last reference.
    """

    def __init__(self, num_blocks: int, block_size: int) -> None:
        if num_blocks < 1 or block_size < 1:
            raise ValueError(f"a pool needs blocks: num_blocks={num_blocks}, block_size={block_size}")
        self.num_blocks = num_blocks
        self.block_size = block_size
        self.log: EventLog | None = None  # while a reader follows the cache
        self._references = [0] * num_blocks
        self._hash_of: list[bytes | None] = [None] * num_blocks
        self._index: dict[bytes, int] = {}
        self._cached: OrderedDict[int, None] = OrderedDict()  # oldest first
        self._free = list(range(num_blocks - 1, -1, -1))

    @property
    def free(self) -> int:
        """Blocks without indexed content."""
        return len(self._free)

    @property
    def cached(self) -> int:
        """Blocks without a holder whose content can still be hit."""
        return len(self._cached)

    @property
    def held(self) -> int:
        """Blocks with at least one reference."""
        return self.num_blocks - len(self._free) - len(self._cached)

    @property
    def available(self) -> int:
        """Blocks that `allocate` can hand out now."""
        return len(self._free) + len(self._cached)

    def match(self, hashes: Sequence[bytes], windows: Sequence[int | None] = (None,)) -> list[int]:
        """The blocks of the longest prefix of `hashes` that a request can start from, of all groups; takes no
        reference.

        `windows`: tokens in each group's window. Of a group without a window all blocks of the prefix must be indexed; of
        one with a window, those that the next token attends to, and the others are HOLEs.
        """
        if len(windows) == 1 and windows[0] is None:
            return self._plain_prefix(hashes)
        full = [group for group, window in enumerate(windows) if window is None]
        sliding = [group for group, window in enumerate(windows) if window is not None]
        end = first = self._common_prefix(hashes, full)
        if sliding:
            seen = max(window for window in windows if window is not None)
            end = self._seen_prefix(hashes[:end], sliding, seen)
            first = first_seen(end * self.block_size, seen, self.block_size)
        found: list[int] = []
        for logical in range(end):
            for group, window in enumerate(windows):
                held = window is None or logical >= first
                found.append(self._index[group_digest(hashes[logical], group)] if held else HOLE)
        return found

    def _plain_prefix(self, hashes: Iterable[bytes]) -> list[int]:
        found: list[int] = []
        for digest in hashes:
            block = self._index.get(digest)
            if block is None:
                break
            found.append(block)
        return found

    def _common_prefix(self, hashes: Sequence[bytes], groups: Sequence[int]) -> int:
        """The number of leading logical blocks that are indexed for all of these groups."""
        for logical, digest in enumerate(hashes):
            for group in groups:
                if group_digest(digest, group) not in self._index:
                    return logical
        return len(hashes)

    def _seen_prefix(self, hashes: Sequence[bytes], groups: Sequence[int], window: int) -> int:
        """The longest prefix, in logical blocks, of which those in the next token's window are indexed for all of these
        groups. The search begins at the end, so that it reads little more than a window."""
        end = logical = len(hashes)
        while logical > first_seen(end * self.block_size, window, self.block_size):
            logical -= 1
            if any(group_digest(hashes[logical], group) not in self._index for group in groups):
                end = logical
        return end

    def count_cached(self, blocks: Iterable[int]) -> int:
        """The number of `blocks` that are cached: `acquire` would remove them from `available`."""
        return sum(1 for block in blocks if block != HOLE and self._references[block] == 0)

    def acquire(self, blocks: Iterable[int]) -> None:
        """Take one reference on each of these matched blocks."""
        for block in blocks:
            if block == HOLE:
                continue
            if self._references[block] == 0:
                del self._cached[block]
            self._references[block] += 1

    def shared(self, block: int) -> bool:
        """Whether more than one table names this block, so that a write must go to a copy of it."""
        return self._references[block] > 1

    def can_allocate(self, count: int) -> bool:
        """Whether `allocate(count)` will succeed."""
        return count <= self.available

    def allocate(self, count: int) -> list[int]:
        """`count` blocks with one reference each, evicting cached ones as needed. All or nothing: raises MemoryError."""
        if not self.can_allocate(count):
            raise MemoryError(f"{count} KV blocks asked, {self.available} available")
        blocks = self._free[: -count - 1 : -1]  # from the end, as a stack
        del self._free[len(self._free) - len(blocks) :]
        while len(blocks) < count:
            blocks.append(self._evict())
        for block in blocks:
            self._references[block] = 1
        return blocks

    def release(self, blocks: Sequence[int], forget: bool = False) -> list[int]:
        """Drop one reference on each block of a sequence, tail first. Returns those without a reference left.

        `forget` also removes them from the index: for content that may be wrong (a request that failed).
        """
        dropped, references = list[int](), self._references
        if forget:
            self.forget(blocks)
        for block in reversed(blocks):
            if block == HOLE:
                continue
            references[block] -= 1
            if not references[block]:
                dropped.append(block)
                if self._hash_of[block] is None:
                    self._free.append(block)
                else:
                    self._cached[block] = None
        return dropped

    def forget(self, blocks: Iterable[int]) -> None:
        """Remove these blocks from the index."""
        for block in blocks:
            if block != HOLE:
                self._unindex(block)

    def index(self, block: int, digest: bytes) -> None:
        """Make a full, computed, held block findable. A second copy of the same content stays unindexed."""
        if digest not in self._index and self._hash_of[block] is None:
            self._index[digest] = block
            self._hash_of[block] = digest

    def find(self, digests: Iterable[bytes]) -> tuple[int, ...]:
        """The indexed blocks of the leading `digests`, up to the first that is not indexed."""
        return tuple(self._plain_prefix(digests))

    def check(self, tables: Iterable[Sequence[int]]) -> None:
        """Recount everything from the block tables. Raises RuntimeError that names the difference."""
        counted = Counter(block for table in tables for block in table if block != HOLE)
        for block, references in enumerate(self._references):
            if counted[block] != references:
                raise RuntimeError(f"block {block}: {references} references counted, {counted[block]} in tables")
        free, cached = set(self._free), set(self._cached)
        if len(free) != len(self._free) or free & cached or (free | cached) & counted.keys():
            raise RuntimeError("a block is in two states at once")
        if len(counted) + len(cached) + len(free) != self.num_blocks:
            raise RuntimeError(
                f"held {len(counted)} + cached {len(cached)} + free {len(free)} is not total {self.num_blocks}"
            )
        for digest, block in self._index.items():
            if self._hash_of[block] != digest or block in free:
                raise RuntimeError(f"the index names block {block}, whose content is another")
        if any(self._hash_of[block] is None for block in cached):
            raise RuntimeError("a cached block cannot be found")

    def _evict(self) -> int:
        block, _ = self._cached.popitem(last=False)
        self._unindex(block)
        return block

    def _unindex(self, block: int) -> None:
        digest = self._hash_of[block]
        if digest is not None:
            del self._index[digest]
            self._hash_of[block] = None
            if self.log is not None:
                self.log.removed(block)
