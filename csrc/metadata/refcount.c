/* SPDX-License-Identifier: MIT
 *
 * The refcount structure: table → block → count. The table is checked when it is opened and lives in memory;
 * a block offset is checked again whenever it is used, because a table may be large and damage local.
 * Invariant: `dirty` spans every table entry that differs from the disk. Called by alloc, flush
 * and check. Never takes or frees clusters.
 */
#include "metadata/refcount.h"

#include <assert.h>
#include <string.h>

#include "base/bytes.h"
#include "base/memory.h"

#define SLICE_SIZE_MAX UINT32_C(65536)
#define SLICES_MIN 4u

static uint32_t slice_entries(const struct refcount *refcount) {
    return (uint32_t) ((uint64_t) refcount->blocks.slot_size * 8 >> refcount->geometry->refcount_order);
}

static int note_blocks(struct refcount *refcount) {
    for (uint64_t i = 0; i < refcount->table_entries; i++) {
        if (refcount->table[i] == 0 || refcount->table[i] >> FORMAT_HOST_OFFSET_BITS != 0) continue; /* damage is met when it is used */
        const uint64_t cluster = geometry_cluster(refcount->geometry, refcount->table[i]);
        const int result = overlap_add(refcount->overlap, OVERLAP_REFCOUNT_BLOCK, cluster, 1);
        if (result < 0) return result;
    }
    return overlap_add(refcount->overlap, OVERLAP_REFCOUNT_TABLE, geometry_cluster(refcount->geometry, refcount->table_offset),
                       refcount_table_clusters(refcount));
}

int refcount_init(struct refcount *refcount, const struct geometry *geometry, struct overlap *overlap, uint64_t *table, uint64_t entries,
                  uint64_t table_offset, uint64_t cache_bytes) {
    const uint32_t slice = (uint32_t) min_u64(geometry->cluster_size, SLICE_SIZE_MAX);
    *refcount = (struct refcount){.geometry = geometry,
                                  .overlap = overlap,
                                  .table = table,
                                  .table_entries = entries,
                                  .table_offset = table_offset,
                                  .host_end = UINT64_MAX};
    int result = cache_init(&refcount->blocks, slice, max_u64(cache_bytes / slice, SLICES_MIN));
    if (result == 0) result = note_blocks(refcount);
    if (result < 0) {
        refcount->table = NULL;
        refcount_destroy(refcount);
    }
    return result;
}

void refcount_destroy(struct refcount *refcount) {
    cache_destroy(&refcount->blocks);
    memory_free(refcount->table);
    memset(refcount, 0, sizeof *refcount);
}

static bool block_is_sound(const struct refcount *refcount, uint64_t block_index, uint64_t block_offset, struct error *error) {
    if (geometry_in_cluster(refcount->geometry, block_offset) != 0) {
        error_set(error, ERROR_CORRUPT, "refcount table entry %llu at offset %llu: refcount block offset %llu is not cluster-aligned",
                  (unsigned long long) block_index, (unsigned long long) (refcount->table_offset + 8 * block_index),
                  (unsigned long long) block_offset);
        return false;
    }
    if (!within_u64(block_offset, refcount->geometry->cluster_size, round_up_u64(refcount->host_end, refcount->geometry->cluster_size))) {
        error_set(error, ERROR_CORRUPT, "refcount table entry %llu at offset %llu: refcount block offset %llu lies outside the file",
                  (unsigned long long) block_index, (unsigned long long) (refcount->table_offset + 8 * block_index),
                  (unsigned long long) block_offset);
        return false;
    }
    uint64_t cluster = 0;
    const unsigned others = overlap_find(refcount->overlap, geometry_cluster(refcount->geometry, block_offset), 1, &cluster) &
                            ~(unsigned) OVERLAP_REFCOUNT_BLOCK;
    if (others != 0) {
        error_set(error, ERROR_CORRUPT, "refcount table entry %llu at offset %llu: at refcount block offset %llu lies the %s",
                  (unsigned long long) block_index, (unsigned long long) (refcount->table_offset + 8 * block_index),
                  (unsigned long long) block_offset, overlap_kind_name(others));
        return false;
    }
    return true;
}

enum refcount_state refcount_slice(struct refcount *refcount, uint64_t host_cluster, struct slot **slot, struct want *want,
                                   struct error *error) {
    const uint64_t block_index = geometry_block_index(refcount->geometry, host_cluster);
    if (block_index >= refcount->table_entries || refcount->table[block_index] == 0) return REFCOUNT_UNCOVERED;
    const uint64_t block_offset = refcount->table[block_index];
    if (!block_is_sound(refcount, block_index, block_offset, error)) return REFCOUNT_FAILED;
    const uint64_t slice = geometry_in_block(refcount->geometry, host_cluster) / slice_entries(refcount);
    *slot = cache_ask(&refcount->blocks, block_offset + slice * refcount->blocks.slot_size, want);
    if (*slot != NULL) return REFCOUNT_READY;
    if (want->kind != WANT_NOTHING) return REFCOUNT_WANT;
    error_set(error, -ENOMEM, "no memory for a refcount block");
    return REFCOUNT_FAILED;
}

uint64_t refcount_get(const struct refcount *refcount, const struct slot *slot, uint64_t host_cluster) {
    return bits_get(slot->bytes, refcount->geometry->refcount_order, host_cluster & (slice_entries(refcount) - 1));
}

void refcount_set(struct refcount *refcount, struct slot *slot, uint64_t host_cluster, uint64_t value) {
    assert(value <= refcount->geometry->refcount_max);
    const unsigned order = refcount->geometry->refcount_order;
    const uint32_t index = (uint32_t) (host_cluster & (slice_entries(refcount) - 1));
    bits_set(slot->bytes, order, index, value);
    const uint32_t bit = index << order, width = UINT32_C(1) << order;
    cache_dirty(&refcount->blocks, slot, bit / 8, (bit + width + 7) / 8);
}

uint64_t refcount_left_in_slice(const struct refcount *refcount, uint64_t host_cluster) {
    return slice_entries(refcount) - (host_cluster & (slice_entries(refcount) - 1));
}

uint64_t refcount_next_free(const struct refcount *refcount, const struct slot *slot, uint64_t host_cluster) {
    const uint64_t end = host_cluster + refcount_left_in_slice(refcount, host_cluster);
    while (host_cluster < end && refcount_get(refcount, slot, host_cluster) != 0) host_cluster++;
    return host_cluster;
}

uint64_t refcount_reach(const struct refcount *refcount) { return refcount->table_entries << refcount->geometry->block_bits; }

int refcount_put_block(struct refcount *refcount, uint64_t block_index, uint64_t block_offset) {
    assert(block_index < refcount->table_entries && refcount->table[block_index] == 0 && block_offset != 0);
    const uint64_t cluster = geometry_cluster(refcount->geometry, block_offset);
    const int result = overlap_add(refcount->overlap, OVERLAP_REFCOUNT_BLOCK, cluster, 1);
    if (result < 0) return result;
    refcount->table[block_index] = block_offset;
    refcount->host_end = max_u64(refcount->host_end, block_offset + refcount->geometry->cluster_size);
    range_widen(&refcount->dirty, block_index, block_index + 1);
    return 0;
}

void refcount_replace_table(struct refcount *refcount, uint64_t *table, uint64_t entries, uint64_t table_offset) {
    overlap_remove(refcount->overlap, OVERLAP_REFCOUNT_TABLE, geometry_cluster(refcount->geometry, refcount->table_offset),
                   refcount_table_clusters(refcount));
    memory_free(refcount->table);
    refcount->table = table;
    refcount->table_entries = entries;
    refcount->table_offset = table_offset;
    refcount->dirty = (struct range){0, 0};
}

uint64_t refcount_table_clusters(const struct refcount *refcount) {
    return geometry_clusters_for(refcount->geometry, refcount->table_entries * 8);
}
