/* The way of a tile through its keys, KEYS at a time, and the places of its query rows. Included by pair_tile.h. */

/* The token and the query head of a row. */
struct NAME(place) {
    int64_t token, head;
};

/* Rows of one KV head are adjacent. */
static INLINE struct NAME(place) NAME(place_of)(const struct work *work, const struct tile *tile, int row) {
    const int of_token = (int)(work->heads / work->kv_heads), rows = tile->count * of_token;
    return (struct NAME(place)){tile->token + row % rows / of_token, (tile->kv_head + row / rows) * of_token + row % of_token};
}

/* Finds the groups of a tile from position `at` on. Returns the position behind them. */
static INLINE int64_t NAME(find_more)(const struct work *work, const struct tile *tile, int64_t at, struct NAME(group) *groups) {
    return NAME(find_groups)(work, work->tables + work->table_first[tile->row], at, tile->position + tile->count - 1, groups);
}

/* The position of the oldest key that a tile attends to. */
static INLINE int64_t NAME(oldest)(const struct layer *layer, const struct tile *tile) {
    const int64_t at = layer->window > 0 ? tile->position - layer->window + 1 : 0;
    return at < 0 ? 0 : at;
}

/* The first groups of the tile after this one, relative to this one's KV head. */
static INLINE void NAME(first_groups)(const struct work *work, const struct layer *layer, const struct tile *tile,
                                      struct NAME(group) *groups) {
    const struct tile *after = tile->after;
    NAME(find_more)(work, after, NAME(oldest)(layer, after), groups);
    for (int g = 0; g < GROUPS; g++)
        groups[g].base += (after->kv_head - tile->kv_head) * head_bytes(work);
}

/* The keys of the present step, and those of the next one, which may be the first of the tile after this one. */
struct NAME(walk) {
    const struct NAME(group) *now, *next;
    struct NAME(group) groups[2][GROUPS], first[GROUPS];
    int64_t at;
    int turn;
};

static INLINE struct NAME(walk) NAME(begin)(const struct work *work, const struct layer *layer, const struct tile *tile) {
    struct NAME(walk) walk = {.turn = 1};
    walk.at = NAME(find_more)(work, tile, NAME(oldest)(layer, tile), walk.groups[0]);
    return walk;
}

/* Takes a step. Returns 0 if the tile has no more keys. */
static INLINE int NAME(advance)(const struct work *work, const struct layer *layer, const struct tile *tile,
                                struct NAME(walk) *walk) {
    walk->turn = !walk->turn;
    walk->now = walk->groups[walk->turn], walk->next = walk->groups[!walk->turn];
    if (walk->now[0].count == 0)
        return 0;
    walk->at = NAME(find_more)(work, tile, walk->at, walk->groups[!walk->turn]);
    if (walk->next[0].count == 0 && tile->after != NULL) {
        NAME(first_groups)(work, layer, tile, walk->first);
        walk->next = walk->first;
    }
    return 1;
}

/* Whether any key of these groups is masked for a row of the tile, or scores are capped. */
static INLINE int NAME(hides)(const struct layer *layer, const struct tile *tile, const struct NAME(group) *groups) {
    const struct NAME(group) *end = groups + GROUPS - 1;
    return layer->softcap > 0 || end->count < LANES || end->at + LANES - 1 > tile->position ||
           groups[0].count + groups[1].count + groups[2].count < KEYS - LANES ||
           (layer->window > 0 && groups[0].at <= tile->position + tile->count - 1 - layer->window);
}
