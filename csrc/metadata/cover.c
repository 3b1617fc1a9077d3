/* SPDX-License-Identifier: MIT
 *
 * How many blocks a stretch needs depends on how much it holds, and that on how many blocks and table clusters
 * there are: `measure` goes round until both agree (twice at most in practice). Invariant: nothing in memory changes between plan
 * and done except the flags `covering` and `growing`, so a failed write leaves the image as it was.
 * Called by the guest storey. Does no I/O.
 */
#include "metadata/cover.h"

#include <string.h>

#include "base/bytes.h"
#include "base/memory.h"

#define WRITE_UNIT 4096u /* block bytes are written in multiples of this, as far as the cluster goes */

static uint64_t total_clusters(const struct cover *cover) { return cover->block_count + cover->table_clusters + cover->extra; }

uint64_t cover_extra_cluster(const struct cover *cover) { return cover->host_cluster + cover->block_count + cover->table_clusters; }

/* With several blocks in a row, none of their entries may be in use: go behind the last entry that is. */
static uint64_t index_after_last_block(const struct refcount *refcount) {
    uint64_t index = refcount->table_entries;
    while (index > 0 && refcount->table[index - 1] == 0) index--;
    return index;
}

static uint64_t entries_for(const struct alloc *alloc, uint64_t needed) {
    const uint64_t per_cluster = alloc->geometry->cluster_size / 8;
    const uint64_t comfortable = alloc->refcount->table_entries + alloc->refcount->table_entries / 2;
    const uint64_t most = max_u64(FORMAT_REFCOUNT_TABLE_BYTES_MAX / 8, per_cluster);
    return ceil_div_u64(max_u64(needed, min_u64(comfortable, most)), per_cluster) * per_cluster;
}

static void measure(struct cover *cover, const struct alloc *alloc) {
    const uint64_t per_block = geometry_block_entries(alloc->geometry);
    cover->block_count = 1;
    for (;;) {
        if (cover->block_count > 1) cover->block_index = max_u64(cover->block_index, index_after_last_block(alloc->refcount));
        const uint64_t needed = cover->block_index + cover->block_count;
        const bool longer = needed > alloc->refcount->table_entries;
        cover->table_entries = longer ? entries_for(alloc, needed) : 0;
        cover->table_clusters = geometry_clusters_for(alloc->geometry, cover->table_entries * 8);
        const uint64_t blocks = ceil_div_u64(total_clusters(cover), per_block);
        if (blocks <= cover->block_count) return;
        cover->block_count = blocks;
    }
}

static int check_limits(const struct cover *cover, const struct alloc *alloc, struct error *error) {
    const uint64_t host_end = geometry_offset(alloc->geometry, cover->host_cluster + total_clusters(cover));
    if (cover->table_entries * 8 > max_u64(FORMAT_REFCOUNT_TABLE_BYTES_MAX, alloc->geometry->cluster_size)) {
        return error_set(error, -EFBIG, "the image file is full: covering offset %llu needs a refcount table of %llu bytes, more than %llu",
                         (unsigned long long) geometry_offset(alloc->geometry, cover->host_cluster),
                         (unsigned long long) cover->table_entries * 8, (unsigned long long) FORMAT_REFCOUNT_TABLE_BYTES_MAX);
    }
    if (host_end > UINT64_C(1) << FORMAT_HOST_OFFSET_BITS) {
        return error_set(error, -EFBIG, "the image file would grow past 2^%u bytes, the most that an L2 entry can name",
                         FORMAT_HOST_OFFSET_BITS);
    }
    return 0;
}

static void clear(struct cover *cover) {
    memory_free(cover->block_bytes);
    memory_free(cover->table_bytes);
    memset(cover, 0, sizeof *cover);
}

/* The new blocks count what lies at the stretch's start: total_clusters ones, then zeroes. */
static int make_blocks(struct cover *cover, const struct alloc *alloc) {
    const unsigned order = alloc->geometry->refcount_order;
    const uint64_t bits = total_clusters(cover) << order;
    const uint64_t whole = geometry_offset(alloc->geometry, cover->block_count);
    cover->block_length = min_u64(round_up_u64(ceil_div_u64(bits, 8), WRITE_UNIT), whole);
    cover->block_bytes = memory_aligned(cover->block_length);
    if (cover->block_bytes == NULL) return -ENOMEM;
    memset(cover->block_bytes, 0, cover->block_length);
    for (uint64_t i = 0; i < total_clusters(cover); i++) bits_set(cover->block_bytes, order, i, 1);
    return 0;
}

/* The new table: the old entries, and the new blocks'. */
static int make_table(struct cover *cover, const struct alloc *alloc) {
    if (cover->table_clusters == 0) return 0;
    const uint64_t length = geometry_offset(alloc->geometry, cover->table_clusters);
    cover->table_bytes = memory_aligned(length);
    if (cover->table_bytes == NULL) return -ENOMEM;
    memset(cover->table_bytes, 0, length);
    for (uint64_t i = 0; i < alloc->refcount->table_entries; i++) store_be64(cover->table_bytes + 8 * i, alloc->refcount->table[i]);
    for (uint64_t i = 0; i < cover->block_count; i++) {
        store_be64(cover->table_bytes + 8 * (cover->block_index + i), geometry_offset(alloc->geometry, cover->host_cluster + i));
    }
    return 0;
}

static void fill_moves(const struct cover *cover, struct alloc *alloc, struct moves *moves) {
    const uint64_t start = geometry_offset(alloc->geometry, cover->host_cluster);
    const uint64_t end = start + geometry_offset(alloc->geometry, total_clusters(cover));
    const uint64_t blocks_end = start + geometry_offset(alloc->geometry, cover->block_count);
    moves->count = 0;
    if (end > alloc->file_length) alloc_grow_plan(alloc, end, moves);
    if (cover->host_cluster < alloc->fresh_from) moves_add(moves, MOVE_ZERO, alloc->file, start, end - start)->after = true;
    moves_add_bytes(moves, MOVE_WRITE, alloc->file, start, cover->block_bytes, cover->block_length)->after = true;
    if (cover->table_clusters > 0) {
        moves_add_bytes(moves, MOVE_WRITE, alloc->file, blocks_end, cover->table_bytes,
                        geometry_offset(alloc->geometry, cover->table_clusters))
            ->after = true;
    }
}

int cover_plan(struct cover *cover, struct alloc *alloc, uint64_t host_cluster, uint64_t extra, struct moves *moves, struct error *error) {
    *cover = (struct cover){.block_index = geometry_block_index(alloc->geometry, host_cluster), .extra = extra};
    measure(cover, alloc);
    cover->host_cluster = cover->block_index << alloc->geometry->block_bits;
    int result = check_limits(cover, alloc, error);
    if (result == 0) {
        result =
            overlap_refuse_free(alloc->refcount->overlap, cover->host_cluster, total_clusters(cover), alloc->geometry->cluster_bits, error);
    }
    if (result < 0) return result;
    result = make_blocks(cover, alloc);
    if (result == 0) result = make_table(cover, alloc);
    if (result == 0) result = overlap_reserve(alloc->refcount->overlap, cover->block_count + cover->table_clusters);
    if (result == 0) result = alloc_reserve_drops(alloc, 1);
    if (result < 0) {
        clear(cover);
        return error_set(error, result, "no memory for a refcount block");
    }
    fill_moves(cover, alloc, moves);
    alloc->covering = true;
    return 0;
}

/* Swaps the longer table in; the old one is given up. */
static int put_table(struct cover *cover, struct alloc *alloc, uint64_t dropped_at) {
    struct refcount *refcount = alloc->refcount;
    uint64_t *table = memory_array(cover->table_entries, sizeof *table);
    if (table == NULL) return -ENOMEM;
    memcpy(table, refcount->table, refcount->table_entries * sizeof *table);
    const uint64_t old_cluster = geometry_cluster(alloc->geometry, refcount->table_offset);
    const uint64_t old_count = refcount_table_clusters(refcount);
    const uint64_t cluster = cover->host_cluster + cover->block_count;
    refcount_replace_table(refcount, table, cover->table_entries, geometry_offset(alloc->geometry, cluster));
    overlap_add(refcount->overlap, OVERLAP_REFCOUNT_TABLE, cluster, cover->table_clusters);
    return alloc_drop(alloc, old_cluster, old_count, dropped_at);
}

/* All or nothing: what was reserved when it was planned may have gone to others since, so it is reserved anew. */
static int put(struct cover *cover, struct alloc *alloc, uint64_t dropped_at) {
    int result = overlap_reserve(alloc->refcount->overlap, cover->block_count + cover->table_clusters);
    if (result == 0) result = alloc_reserve_drops(alloc, 1);
    if (result == 0 && cover->table_clusters > 0) result = put_table(cover, alloc, dropped_at);
    if (result < 0) return result;
    for (uint64_t i = 0; result == 0 && i < cover->block_count; i++) {
        const uint64_t block_offset = geometry_offset(alloc->geometry, cover->host_cluster + i);
        result = refcount_put_block(alloc->refcount, cover->block_index + i, block_offset);
    }
    const uint64_t end = cover->host_cluster + total_clusters(cover);
    if (alloc->fresh_from < end) alloc->fresh_from = end;
    alloc->end = max_u64(alloc->end, end);
    return result;
}

int cover_done(struct cover *cover, struct alloc *alloc, int result, uint64_t dropped_at) {
    if (result == 0) result = put(cover, alloc, dropped_at);
    alloc->covering = false;
    clear(cover);
    waiters_wake(&alloc->covered);
    return result;
}
