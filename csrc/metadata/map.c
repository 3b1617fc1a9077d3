/* SPDX-License-Identifier: MIT
 *
 * L1 and L2 tables. The L1 table was checked for place and size when it was opened; each entry is checked when it
 * is used, so damage in one does not stop reads through the others. Invariants: an L2 table is changed in place only
 * when its L1 entry has COPIED; `dirty` spans every L1 entry that differs from the disk.
 * Called by the guest storey and flush. Never takes or frees clusters, never does I/O.
 */
#include "metadata/map.h"

#include <assert.h>
#include <string.h>

#include "base/bytes.h"
#include "base/memory.h"

#define TABLE_KINDS ((unsigned) OVERLAP_ACTIVE_L2 | (unsigned) OVERLAP_INACTIVE_L2) /* what an L2 table's cluster may be */

static int note_tables(struct map *map) {
    for (uint64_t i = 0; i < map->l1_entries; i++) {
        const uint64_t table = map->l1[i] & FORMAT_ENTRY_OFFSET;
        if (table == 0) continue;
        const int result = overlap_add(map->overlap, OVERLAP_ACTIVE_L2, geometry_cluster(map->geometry, table), 1);
        if (result < 0) return result;
    }
    return overlap_add(map->overlap, OVERLAP_ACTIVE_L1, geometry_cluster(map->geometry, map->l1_offset), map_l1_clusters(map));
}

int map_init(struct map *map, const struct geometry *geometry, struct overlap *overlap, uint64_t *l1, uint64_t l1_entries,
             uint64_t l1_offset, uint32_t entry_size, uint64_t cache_bytes) {
    *map = (struct map){
        .geometry = geometry, .overlap = overlap, .l1 = l1, .l1_entries = l1_entries, .l1_offset = l1_offset, .host_end = UINT64_MAX};
    int result = cache_init(&map->l2, entry_size, cache_bytes / entry_size);
    if (result == 0) result = note_tables(map);
    if (result < 0) {
        map->l1 = NULL;
        map_destroy(map);
    }
    return result;
}

void map_destroy(struct map *map) {
    cache_destroy(&map->l2);
    memory_free(map->l1);
    memset(map, 0, sizeof *map);
}

/* ---- finding ---- */

static int check_l1_entry(const struct map *map, uint64_t index, struct error *error) {
    const uint64_t entry = map->l1[index], table = entry & FORMAT_ENTRY_OFFSET;
    const unsigned long long at = map->l1_offset + 8 * index;
    uint64_t cluster = 0;
    if ((entry & FORMAT_L1_RESERVED) != 0) {
        return error_set(error, ERROR_CORRUPT, "L1 entry %llu at offset %llu: reserved bits are set (%#llx)", (unsigned long long) index,
                         at, (unsigned long long) entry);
    }
    if (geometry_in_cluster(map->geometry, table) != 0) {
        return error_set(error, ERROR_CORRUPT, "L1 entry %llu at offset %llu: L2 table offset %llu is not cluster-aligned",
                         (unsigned long long) index, at, (unsigned long long) table);
    }
    if (table >= map->host_end) {
        return error_set(error, ERROR_CORRUPT, "L1 entry %llu at offset %llu: L2 table offset %llu lies outside the file",
                         (unsigned long long) index, at, (unsigned long long) table);
    }
    const unsigned others = overlap_find(map->overlap, geometry_cluster(map->geometry, table), 1, &cluster) & ~TABLE_KINDS;
    if (others != 0) {
        return error_set(error, ERROR_CORRUPT, "L1 entry %llu at offset %llu: at L2 table offset %llu lies the %s",
                         (unsigned long long) index, at, (unsigned long long) table, overlap_kind_name(others));
    }
    return 0;
}

enum map_state map_slice(struct map *map, uint64_t guest_offset, struct slot **slot, struct want *want, struct error *error) {
    const uint64_t index = geometry_l1_index(map->geometry, guest_offset);
    if (index >= map->l1_entries || (map->l1[index] & ~FORMAT_ENTRY_COPIED) == 0) return MAP_NO_TABLE;
    if (check_l1_entry(map, index, error) < 0) return MAP_FAILED;
    const uint64_t in_table = (uint64_t) geometry_l2_index(map->geometry, guest_offset) * map->geometry->l2_entry_size;
    const uint64_t table = map->l1[index] & FORMAT_ENTRY_OFFSET;
    *slot = cache_ask(&map->l2, table + round_down_u64(in_table, map->l2.slot_size), want);
    if (*slot != NULL) return MAP_READY;
    if (want->kind != WANT_NOTHING) return MAP_WANT;
    error_set(error, -ENOMEM, "no memory for an L2 table");
    return MAP_FAILED;
}

bool map_table_is_ours(const struct map *map, uint64_t guest_offset) {
    const uint64_t entry = map->l1[geometry_l1_index(map->geometry, guest_offset)];
    return (entry & FORMAT_ENTRY_COPIED) != 0 && (entry & FORMAT_ENTRY_OFFSET) != 0;
}

uint64_t map_table_offset(const struct map *map, uint64_t guest_offset) {
    const uint64_t index = geometry_l1_index(map->geometry, guest_offset);
    return index < map->l1_entries ? map->l1[index] & FORMAT_ENTRY_OFFSET : 0;
}

static uint8_t *entry_bytes(const struct map *map, const struct slot *slot, uint64_t guest_offset) {
    const uint32_t in_table = geometry_l2_index(map->geometry, guest_offset) * map->geometry->l2_entry_size;
    return slot->bytes + (in_table & (map->l2.slot_size - 1));
}

struct cluster map_get(const struct map *map, const struct slot *slot, uint64_t guest_offset) {
    return cluster_decode(map->geometry, entry_bytes(map, slot, guest_offset));
}

void map_set(struct map *map, struct slot *slot, uint64_t guest_offset, const struct cluster *cluster) {
    uint8_t *bytes = entry_bytes(map, slot, guest_offset);
    cluster_encode(map->geometry, cluster, bytes);
    const uint32_t start = (uint32_t) (bytes - slot->bytes);
    cache_dirty(&map->l2, slot, start, start + map->geometry->l2_entry_size);
}

uint64_t map_left_in_slice(const struct map *map, uint64_t guest_offset) {
    const uint64_t span = (uint64_t) (map->l2.slot_size / map->geometry->l2_entry_size) << map->geometry->cluster_bits;
    return span - (guest_offset & (span - 1));
}

/* ---- runs ---- */

static int explain_invalid(const struct map *map, const struct slot *slot, uint64_t guest_offset, struct error *error) {
    const uint8_t *bytes = entry_bytes(map, slot, guest_offset);
    return error_set(error, ERROR_CORRUPT, "L2 entry at offset %llu (guest offset %llu) is invalid: %#llx",
                     (unsigned long long) (slot->host_offset + (uint64_t) (bytes - slot->bytes)),
                     (unsigned long long) geometry_cluster_start(map->geometry, guest_offset), (unsigned long long) load_be64(bytes));
}

static int explain_misplaced(uint64_t guest_offset, const struct cluster *cluster, struct error *error) {
    return error_set(error, ERROR_CORRUPT, "guest offset %llu is mapped to offset %llu of the external data file; these must be the same",
                     (unsigned long long) guest_offset, (unsigned long long) cluster->host_offset);
}

static void start_run(const struct map *map, const struct cluster *cluster, uint64_t guest_offset, struct run *run) {
    const uint32_t in_cluster = geometry_in_cluster(map->geometry, guest_offset);
    *run = (struct run){.type = cluster_type_at(map->geometry, cluster, in_cluster),
                        .copied = cluster->copied,
                        .guest_offset = guest_offset,
                        .host_offset = cluster->host_offset + (cluster_is_placed(cluster) ? in_cluster : 0),
                        .compressed_length = cluster->byte_length};
}

/* With subclusters: where the run ends that holds guest_offset, at most `limit`. */
static uint64_t subclusters_end(const struct map *map, const struct slot *slot, uint64_t guest_offset, uint64_t limit) {
    const struct geometry *geometry = map->geometry;
    const struct cluster first = map_get(map, slot, guest_offset);
    const enum cluster_type type = cluster_type_at(geometry, &first, geometry_in_cluster(geometry, guest_offset));
    const uint64_t start = geometry_cluster_start(geometry, guest_offset);
    uint64_t at = start + cluster_alike_end(geometry, &first, geometry_in_cluster(geometry, guest_offset));
    while (at < limit && geometry_in_cluster(geometry, at) == 0 && first.type != CLUSTER_COMPRESSED) {
        const struct cluster next = map_get(map, slot, at);
        const bool placed = cluster_is_placed(&first);
        if (next.type != first.type || cluster_type_at(geometry, &next, 0) != type || next.copied != first.copied) break;
        if (placed && next.host_offset != first.host_offset + (at - start)) break;
        at += cluster_alike_end(geometry, &next, 0);
    }
    return min_u64(at, limit);
}

int map_run(const struct map *map, const struct slot *slot, uint64_t guest_offset, uint64_t length, struct run *run, struct error *error) {
    const uint64_t limit = guest_offset + min_u64(length, map_left_in_slice(map, guest_offset));
    const uint64_t start = geometry_cluster_start(map->geometry, guest_offset);
    const struct cluster cluster = map_get(map, slot, guest_offset);
    if (cluster.type == CLUSTER_INVALID) return explain_invalid(map, slot, guest_offset, error);
    if (map->geometry->data_file && cluster_is_placed(&cluster) && cluster.host_offset != start)
        return explain_misplaced(start, &cluster, error);
    start_run(map, &cluster, guest_offset, run);
    if (map->geometry->extended_l2) {
        run->length = subclusters_end(map, slot, guest_offset, limit) - guest_offset;
        return 0;
    }
    const uint32_t most = (uint32_t) geometry_clusters_for(map->geometry, limit - start);
    const uint32_t count = cluster_count_alike(map->geometry, entry_bytes(map, slot, guest_offset), most);
    const uint64_t at = start + geometry_offset(map->geometry, count);
    run->length = min_u64(at, limit) - guest_offset;
    return 0;
}

void map_run_without_table(const struct map *map, uint64_t guest_offset, uint64_t length, struct run *run) {
    const uint64_t span = geometry_l2_span(map->geometry);
    *run = (struct run){
        .type = CLUSTER_UNALLOCATED, .guest_offset = guest_offset, .length = min_u64(length, span - (guest_offset & (span - 1)))};
}

/* ---- tables ---- */

int map_put_table(struct map *map, uint64_t guest_offset, uint64_t table_offset) {
    const uint64_t index = geometry_l1_index(map->geometry, guest_offset);
    assert(index < map->l1_entries);
    const uint64_t old = map->l1[index] & FORMAT_ENTRY_OFFSET;
    const int result = overlap_add(map->overlap, OVERLAP_ACTIVE_L2, geometry_cluster(map->geometry, table_offset), 1);
    if (result < 0) return result;
    if (old != 0) overlap_remove(map->overlap, OVERLAP_ACTIVE_L2, geometry_cluster(map->geometry, old), 1);
    map->l1[index] = table_offset | FORMAT_ENTRY_COPIED;
    map->host_end = max_u64(map->host_end, table_offset + map->geometry->cluster_size);
    range_widen(&map->dirty, index, index + 1);
    return 0;
}

void map_replace_l1(struct map *map, uint64_t *l1, uint64_t l1_entries, uint64_t l1_offset) {
    overlap_remove(map->overlap, OVERLAP_ACTIVE_L1, geometry_cluster(map->geometry, map->l1_offset), map_l1_clusters(map));
    memory_free(map->l1);
    map->l1 = l1;
    map->l1_entries = l1_entries;
    map->l1_offset = l1_offset;
    map->dirty = (struct range){0, l1_entries};
}

uint64_t map_l1_clusters(const struct map *map) { return geometry_clusters_for(map->geometry, map->l1_entries * 8); }
