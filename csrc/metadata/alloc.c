/* SPDX-License-Identifier: MIT
 *
 * First fit from a hint, within one slice of a refcount block at a time, so that what is found can be taken without
 * further asking. Clusters from fresh_from on were never written since the file was made longer, so they
 * need no zeroing. Invariants: no cluster below `hint` has count 0 (where covered); fresh_from and end only grow.
 * Called by the guest storey and by flush. Does no I/O: growth and reading are moves for the caller.
 */
#include "metadata/alloc.h"

#include <assert.h>
#include <string.h>

#include "base/bytes.h"
#include "base/memory.h"

#define GROW_STEP_MIN (UINT64_C(1) << 20)
#define GROW_STEP_MAX (UINT64_C(64) << 20)
#define WAITING_MIN 64u /* released clusters below this number are not worth a flush */

void alloc_init(struct alloc *alloc, struct refcount *refcount, struct file *file, struct cache *l2_tables, uint64_t file_length) {
    const uint64_t end = geometry_clusters_for(refcount->geometry, file_length);
    *alloc = (struct alloc){.geometry = refcount->geometry,
                            .refcount = refcount,
                            .file = file,
                            .l2_tables = l2_tables,
                            .fresh_from = file->grows_as_zeroes ? end : UINT64_MAX,
                            .end = end,
                            .file_length = file_length,
                            .length_at_open = file_length};
}

void alloc_destroy(struct alloc *alloc) {
    memory_free(alloc->released);
    memset(alloc, 0, sizeof *alloc);
}

/* ---- finding and taking ---- */

/* Clusters from `from` in the slice that are free, at most `count`. */
static uint64_t free_run(const struct alloc *alloc, const struct slot *slot, uint64_t from, uint64_t count) {
    const uint64_t limit = min_u64(count, refcount_left_in_slice(alloc->refcount, from));
    uint64_t run = 0;
    while (run < limit && refcount_get(alloc->refcount, slot, from + run) == 0) run++;
    return run;
}

/* The first run in the slice from `from` that is long enough; false: none, *from is the slice's end. */
static bool search_slice(const struct alloc *alloc, const struct slot *slot, uint64_t *from, uint64_t count, bool exact,
                         struct alloc_found *found) {
    const uint64_t end = *from + refcount_left_in_slice(alloc->refcount, *from);
    for (;;) {
        *from = refcount_next_free(alloc->refcount, slot, *from);
        if (*from == end) return false;
        const uint64_t run = free_run(alloc, slot, *from, count);
        *found = (struct alloc_found){.host_cluster = *from, .count = run};
        if (run == count || !exact) return true;
        *from += run;
        if (*from == end) return false;
    }
}

/* Enough clusters wait to become free that a flush is better than a longer file. */
static bool should_flush_first(const struct alloc *alloc, const struct alloc_found *found) {
    const uint64_t waiting = alloc->released_clusters - min_u64(alloc->released_clusters, alloc->released_after_flush);
    return found->host_cluster + found->count > alloc->end && waiting > WAITING_MIN && waiting > alloc->end / 8;
}

static enum alloc_state judge(struct alloc *alloc, const struct alloc_found *found, struct want *want, struct error *error) {
    const uint64_t host_end = geometry_offset(alloc->geometry, found->host_cluster + found->count);
    if (host_end > UINT64_C(1) << FORMAT_HOST_OFFSET_BITS) {
        error_set(error, -EFBIG, "the image file would grow past 2^%u bytes, the most that an L2 entry can name", FORMAT_HOST_OFFSET_BITS);
        return ALLOC_FAILED;
    }
    if (should_flush_first(alloc, found)) {
        *want = (struct want){.kind = WANT_FLUSH};
        return ALLOC_WANT;
    }
    if (host_end <= alloc->file_length) return ALLOC_READY;
    if (!alloc->growing) return ALLOC_GROW;
    *want = (struct want){.kind = WANT_WAIT, .waiters = &alloc->grown};
    return ALLOC_WANT;
}

/* Where to go on. A search must not begin anew after each slice that it had to read, or a small cache would keep it going for ever. */
static uint64_t search_start(struct alloc *alloc, uint64_t count, bool exact) {
    if (!exact) return alloc->hint;
    if (count < alloc->exact_count || alloc->exact_from < alloc->hint) alloc->exact_from = alloc->hint;
    alloc->exact_count = count;
    return alloc->exact_from;
}

enum alloc_state alloc_find(struct alloc *alloc, uint64_t count, bool exact, struct alloc_found *found, struct want *want,
                            struct error *error) {
    for (uint64_t from = search_start(alloc, count, exact);;) {
        struct slot *slot = NULL;
        switch (refcount_slice(alloc->refcount, from, &slot, want, error)) {
            case REFCOUNT_FAILED: return ALLOC_FAILED;
            case REFCOUNT_WANT: return ALLOC_WANT;
            case REFCOUNT_UNCOVERED:
                found->host_cluster = from;
                if (!alloc->covering) return ALLOC_COVER;
                *want = (struct want){.kind = WANT_WAIT, .waiters = &alloc->covered};
                return ALLOC_WANT;
            case REFCOUNT_READY: break;
        }
        const bool hint_here = from == alloc->hint;
        const bool hit = search_slice(alloc, slot, &from, count, exact, found);
        if (exact && !hit) alloc->exact_from = from;
        if (hint_here && !exact) alloc->hint = from;
        if (hit) return judge(alloc, found, want, error);
    }
}

bool alloc_take(struct alloc *alloc, struct alloc_found found) {
    struct want want;
    struct error error;
    struct slot *slot = NULL;
    error_clear(&error);
    const enum refcount_state state = refcount_slice(alloc->refcount, found.host_cluster, &slot, &want, &error);
    assert(state == REFCOUNT_READY);
    (void) state;
    for (uint64_t i = 0; i < found.count; i++) {
        assert(refcount_get(alloc->refcount, slot, found.host_cluster + i) == 0);
        refcount_set(alloc->refcount, slot, found.host_cluster + i, 1);
    }
    const bool fresh = found.host_cluster >= alloc->fresh_from;
    const uint64_t end = found.host_cluster + found.count;
    if (alloc->hint == found.host_cluster) alloc->hint = end;
    if (alloc->fresh_from < end) alloc->fresh_from = end;
    alloc->end = max_u64(alloc->end, end);
    return fresh;
}

void alloc_share(struct alloc *alloc, uint64_t host_cluster) {
    struct want want;
    struct error error;
    struct slot *slot = NULL;
    error_clear(&error);
    const enum refcount_state state = refcount_slice(alloc->refcount, host_cluster, &slot, &want, &error);
    assert(state == REFCOUNT_READY);
    (void) state;
    refcount_set(alloc->refcount, slot, host_cluster, refcount_get(alloc->refcount, slot, host_cluster) + 1);
}

/* ---- giving up and releasing ---- */

int alloc_reserve_drops(struct alloc *alloc, uint64_t count) {
    const uint64_t needed = alloc->released_count + count;
    if (needed <= alloc->released_capacity) return 0;
    uint64_t capacity = max_u64(alloc->released_capacity, 64);
    while (capacity < needed) capacity *= 2;
    struct released *grown = memory_resize(alloc->released, capacity * sizeof *grown);
    if (grown == NULL) return -ENOMEM;
    alloc->released = grown;
    alloc->released_capacity = capacity;
    return 0;
}

int alloc_drop(struct alloc *alloc, uint64_t host_cluster, uint64_t count, uint64_t dropped_at) {
    const int result = alloc_reserve_drops(alloc, 1);
    if (result < 0) return result;
    alloc->released_clusters += count;
    struct released *last = alloc->released_count > 0 ? &alloc->released[alloc->released_count - 1] : NULL;
    if (last != NULL && last->dropped_at == dropped_at && last->host_cluster + last->count == host_cluster) {
        last->count += count;
        return 0;
    }
    alloc->released[alloc->released_count++] = (struct released){.host_cluster = host_cluster, .count = count, .dropped_at = dropped_at};
    return 0;
}

enum alloc_state alloc_release_plan(struct alloc *alloc, uint64_t index, struct alloc_release *release, struct want *want,
                                    struct error *error) {
    const struct released *entry = &alloc->released[index];
    struct slot *slot = NULL;
    switch (refcount_slice(alloc->refcount, entry->host_cluster, &slot, want, error)) {
        case REFCOUNT_FAILED: return ALLOC_FAILED;
        case REFCOUNT_WANT: return ALLOC_WANT;
        case REFCOUNT_UNCOVERED:
            error_set(error, ERROR_CORRUPT, "the host cluster at offset %llu is in use, but no refcount block covers it",
                      (unsigned long long) geometry_offset(alloc->geometry, entry->host_cluster));
            return ALLOC_FAILED;
        case REFCOUNT_READY: break;
    }
    const uint64_t count = refcount_get(alloc->refcount, slot, entry->host_cluster);
    if (count == 0) {
        error_set(error, ERROR_CORRUPT, "the host cluster at offset %llu is in use, but its refcount is 0",
                  (unsigned long long) geometry_offset(alloc->geometry, entry->host_cluster));
        return ALLOC_FAILED;
    }
    const uint64_t limit = min_u64(entry->count, refcount_left_in_slice(alloc->refcount, entry->host_cluster));
    uint64_t run = 1;
    while (run < limit && refcount_get(alloc->refcount, slot, entry->host_cluster + run) == count) run++;
    *release = (struct alloc_release){.host_cluster = entry->host_cluster, .count = run, .last = count == 1};
    return ALLOC_READY;
}

/* What becomes free is no table any more, and may be found again. */
static void becomes_free(struct alloc *alloc, uint64_t host_cluster, uint64_t count) {
    const uint64_t host_offset = geometry_offset(alloc->geometry, host_cluster);
    const uint64_t length = geometry_offset(alloc->geometry, count);
    cache_forget(alloc->l2_tables, host_offset, length);
    cache_forget(&alloc->refcount->blocks, host_offset, length);
    alloc->hint = min_u64(alloc->hint, host_cluster);
    alloc->exact_from = 0; /* a run may begin before what became free */
}

bool alloc_release_apply(struct alloc *alloc, uint64_t index, const struct alloc_release *release) {
    struct released *entry = &alloc->released[index];
    struct want want;
    struct error error;
    struct slot *slot = NULL;
    error_clear(&error);
    const enum refcount_state state = refcount_slice(alloc->refcount, release->host_cluster, &slot, &want, &error);
    if (state == REFCOUNT_WANT && want.kind == WANT_READ) cache_abandon(want.cache, want.slot);
    if (state != REFCOUNT_READY) return false;
    for (uint64_t i = 0; i < release->count; i++) {
        const uint64_t count = refcount_get(alloc->refcount, slot, release->host_cluster + i);
        if (count > 0) refcount_set(alloc->refcount, slot, release->host_cluster + i, count - 1);
    }
    if (release->last) becomes_free(alloc, release->host_cluster, release->count);
    entry->host_cluster += release->count;
    entry->count -= release->count;
    alloc->released_clusters -= release->count;
    return true;
}

void alloc_release_skip(struct alloc *alloc, uint64_t index) {
    alloc->released[index].host_cluster++;
    alloc->released[index].count--;
    alloc->released_clusters--;
}

void alloc_release_sweep(struct alloc *alloc) {
    uint64_t kept = 0;
    for (uint64_t i = 0; i < alloc->released_count; i++) {
        if (alloc->released[i].count > 0) alloc->released[kept++] = alloc->released[i];
    }
    alloc->released_count = kept;
    alloc->released_after_flush = alloc->released_clusters;
}

/* ---- the file's length ---- */

void alloc_grow_plan(struct alloc *alloc, uint64_t host_end, struct moves *moves) {
    uint64_t step = GROW_STEP_MIN; /* an eighth of the file, as a power of two */
    while (step < GROW_STEP_MAX && step < alloc->file_length / 8) step *= 2;
    if (alloc->grows_exactly) step = 0;
    alloc->growing = true;
    moves->count = 0;
    moves_add(moves, MOVE_TRUNCATE, alloc->file, round_up_u64(host_end, max_u64(step, alloc->geometry->cluster_size)), 0);
}

int alloc_grow_done(struct alloc *alloc, const struct move *move, int result) {
    alloc->growing = false;
    if (result == 0) alloc->file_length = max_u64(alloc->file_length, move->offset);
    waiters_wake(&alloc->grown);
    const bool is_full = result == -ENOSPC || result == -EFBIG || result == -EDQUOT;
    if (!is_full || alloc->grows_exactly) return result;
    alloc->grows_exactly = true; /* no room for a step ahead: what is needed may still fit */
    return 0;
}
