/* SPDX-License-Identifier: MIT
 *
 * Refcount blocks that are sound are changed where they are. Where there is none, or one that something else uses too, a new block is made;
 * where the table is no good or too short, a new table. New ones lie past the end of the file; only when the file cannot grow,
 * in clusters that nothing references. Order: all blocks → sync → table (entries, or the new one) → sync → header → sync.
 * So a block is named only when its counts are on disk, and no cluster in use is written to. Called by checkup.
 *
 * New blocks and a new table are clusters that must be counted too, perhaps by further new blocks: planning goes round until
 * nothing is missing. The tally is what all blocks are written from.
 */
#include <inttypes.h>
#include <string.h>

#include "base/bytes.h"
#include "base/memory.h"
#include "base/ranges.h"
#include "image/repair.h"

#define SECTOR 512u
#define POINTER_OFFSET 48u /* of refcount_table_offset in the header; refcount_table_clusters follows */

struct rebuild {
    struct census *census;
    bool raise, lower;
    struct numbers blocks;               /* block index → host cluster of a new block */
    uint64_t next;                       /* host cluster: where to look for the next new one */
    bool within;                         /* the file cannot grow: new ones go where nothing is */
    uint64_t table, table_clusters;      /* the new table's place; 0 clusters: the old one stays */
    uint64_t entries;                    /* of the table as it will be */
    uint64_t changed_start, changed_end; /* entries that differ from the disk */
    uint8_t *buffer;
};

static uint64_t first_of(const struct rebuild *rebuild, uint64_t index) { return index << rebuild->census->geometry.block_bits; }

/* ---- what of the old structure stays ---- */

static bool block_is_sound(struct census *census, uint64_t index) {
    if (index >= census->refcount_entries || census->block_states[index] != BLOCK_SOUND) return false;
    return tally_get(&census->tally, geometry_cluster(&census->geometry, census_block_offset(census, index))) == 1;
}

static bool table_is_sound(struct census *census) {
    const uint64_t first = geometry_cluster(&census->geometry, census->header.refcount_table_offset);
    if (census->refcount_table == NULL) return false;
    for (uint64_t i = 0; i < census->header.refcount_table_clusters; i++) {
        if (tally_get(&census->tally, first + i) != 1) return false;
    }
    return true;
}

/* A block whose entry only has reserved bits set, and that nothing else uses, needs no more than its entry's being mended. */
static int adopt_reserved(struct rebuild *rebuild, uint64_t index) {
    struct census *census = rebuild->census;
    const uint64_t cluster = geometry_cluster(&census->geometry, census_block_offset(census, index));
    if (tally_get(&census->tally, cluster) != 0) return 0;
    census->block_states[index] = BLOCK_SOUND;
    census->refcount_table[index] = census_block_offset(census, index);
    return tally_add(&census->tally, cluster, 1);
}

static void note_change(struct rebuild *rebuild, uint64_t index) {
    const bool none = rebuild->changed_start == rebuild->changed_end;
    rebuild->changed_start = none ? index : min_u64(rebuild->changed_start, index);
    rebuild->changed_end = none ? index + 1 : max_u64(rebuild->changed_end, index + 1);
}

/* ---- planning ---- */

static bool is_free(struct rebuild *rebuild, uint64_t cluster) {
    struct tally_page *page = tally_find(&rebuild->census->tally, cluster);
    if (page == NULL) return !rebuild->census->untraced; /* its stored count was not kept */
    const uint64_t at = tally_in_page(cluster);
    return page->references[at] == 0 && (!rebuild->census->untraced || page->stored[at] == 0);
}

/* `count` clusters in a row, counted from now on. */
static int take(struct rebuild *rebuild, uint64_t count, uint64_t *first) {
    uint64_t run = 0;
    while (rebuild->within && run < count) {
        if (rebuild->next >= rebuild->census->clusters) return -ENOSPC;
        run = is_free(rebuild, rebuild->next++) ? run + 1 : 0;
    }
    *first = rebuild->within ? rebuild->next - count : rebuild->next;
    if (!rebuild->within) rebuild->next += count;
    for (uint64_t i = 0; i < count; i++) {
        if (tally_add(&rebuild->census->tally, *first + i, 1) < 0) return -ENOMEM;
    }
    return 0;
}

static int add_block(struct rebuild *rebuild, uint64_t index, bool *added) {
    uint64_t cluster = 0;
    if (block_is_sound(rebuild->census, index) || numbers_get(&rebuild->blocks, index) != NULL) return 0;
    const int result = take(rebuild, 1, &cluster);
    if (result < 0) return result;
    uint64_t *place = numbers_put(&rebuild->blocks, index);
    if (place == NULL) return -ENOMEM;
    *place = cluster;
    rebuild->entries = max_u64(rebuild->entries, index + 1);
    *added = true;
    return 0;
}

/* The blocks that clusters of one page need. */
static int add_blocks_for(struct rebuild *rebuild, const struct tally_page *page, bool *added) {
    const struct geometry *geometry = &rebuild->census->geometry;
    uint64_t seen = UINT64_MAX;
    for (uint64_t i = 0; i < TALLY_PAGE; i++) {
        const uint64_t index = geometry_block_index(geometry, page->first + i);
        if (page->references[i] == 0 || index == seen) continue;
        const int result = add_block(rebuild, index, added);
        if (result < 0) return result;
        seen = index;
    }
    return 0;
}

static int add_blocks(struct rebuild *rebuild) {
    const struct tally *tally = &rebuild->census->tally;
    int result = 0;
    for (bool added = true; result == 0 && added;) {
        added = false;
        for (uint64_t i = 0; result == 0 && i < tally->page_count; i++) result = add_blocks_for(rebuild, tally->pages[i], &added);
    }
    return result;
}

/* A table that covers everything, itself and the blocks for it too. */
static int add_table(struct rebuild *rebuild) {
    const struct geometry *geometry = &rebuild->census->geometry;
    uint64_t clusters = 1;
    for (;;) {
        const uint64_t last = max_u64(rebuild->next, rebuild->census->clusters) + clusters + clusters / 8 + 16;
        const uint64_t entries = max_u64(rebuild->entries, geometry_block_index(geometry, last) + 2);
        const uint64_t needed = geometry_clusters_for(geometry, entries * 8);
        if (needed <= clusters) break;
        clusters = needed;
    }
    if (geometry_offset(geometry, clusters) > FORMAT_REFCOUNT_TABLE_BYTES_MAX) return -EFBIG;
    rebuild->table_clusters = clusters;
    const int result = take(rebuild, clusters, &rebuild->table);
    return result < 0 ? result : add_blocks(rebuild);
}

static int plan(struct rebuild *rebuild) {
    struct census *census = rebuild->census;
    const bool sound = table_is_sound(census);
    int result = add_blocks(rebuild);
    if (result == 0 && (!sound || rebuild->entries > census->refcount_entries)) result = add_table(rebuild);
    if (result < 0 || rebuild->table_clusters == 0) return result;
    rebuild->entries = geometry_offset(&census->geometry, rebuild->table_clusters) / 8;
    return 0;
}

/* What take counted is counted no more. */
static int forget_plan(struct rebuild *rebuild) {
    struct tally *tally = &rebuild->census->tally;
    int result = 0;
    for (uint64_t i = 0; i < rebuild->blocks.capacity; i++) {
        const struct number_pair *pair = &rebuild->blocks.pairs[i];
        if (pair->key != UINT64_MAX && result == 0) result = tally_set(tally, pair->value, tally_get(tally, pair->value) - 1);
    }
    for (uint64_t i = 0; result == 0 && i < rebuild->table_clusters; i++) result = tally_set(tally, rebuild->table + i, 0);
    numbers_clear(&rebuild->blocks);
    rebuild->table_clusters = 0;
    rebuild->entries = rebuild->census->refcount_entries;
    return result;
}

/* Past the end of the file; in it, if it cannot grow. */
static int plan_somewhere(struct rebuild *rebuild, struct error *error) {
    struct census *census = rebuild->census;
    struct error grow = {.code = 0};
    rebuild->next = census->clusters;
    int result = plan(rebuild);
    if (result == 0 && rebuild->next == census->clusters) return 0;
    if (result == 0) result = file_truncate(census->file, geometry_offset(&census->geometry, rebuild->next), &grow);
    if (result == 0 || result == -ENOMEM) return result;
    result = forget_plan(rebuild);
    rebuild->within = true;
    rebuild->next = 1;
    if (result == 0) result = plan(rebuild);
    if (result < 0) error_set(error, result, "there is no room for new refcount blocks: %s", grow.text);
    return result;
}

/* ---- dropping the old ---- */

static int uncount(struct census *census, uint64_t cluster) {
    const uint64_t references = tally_get(&census->tally, cluster);
    return references == 0 ? 0 : tally_set(&census->tally, cluster, references - 1);
}

static int drop_entry(struct rebuild *rebuild, uint64_t index) {
    struct census *census = rebuild->census;
    const uint8_t state = census->block_states[index];
    const uint64_t cluster = geometry_cluster(&census->geometry, census_block_offset(census, index));
    int result = 0;
    if (state == BLOCK_SOUND || state == BLOCK_SHARED) result = uncount(census, cluster);
    census->refcount_table[index] = 0;
    census->block_states[index] = BLOCK_NONE;
    note_change(rebuild, index);
    census->findings.corruptions_fixed++;
    return result;
}

/* Blocks that are no good leave the table, and an old table that is no good stops being counted. Which ones these are is asked before any
 * is uncounted: of two entries that name one block, neither is kept. */
static int drop_old(struct rebuild *rebuild) {
    struct census *census = rebuild->census;
    const bool old_table = rebuild->table_clusters > 0 && census->refcount_table != NULL;
    int result = 0;
    for (uint64_t i = 0; i < census->refcount_entries; i++) {
        if (census->block_states[i] == BLOCK_SOUND && !block_is_sound(census, i)) census->block_states[i] = BLOCK_SHARED;
    }
    for (uint64_t i = 0; result == 0 && i < census->refcount_entries; i++) {
        if (census->block_states[i] > BLOCK_SOUND) result = drop_entry(rebuild, i);
    }
    for (uint64_t i = 0; old_table && result == 0 && i < census->header.refcount_table_clusters; i++) {
        result = uncount(census, geometry_cluster(&census->geometry, census->header.refcount_table_offset) + i);
    }
    return result;
}

/* ---- blocks ---- */

/* What the cluster's refcount shall be. */
static uint64_t target(struct rebuild *rebuild, uint64_t cluster, uint64_t stored) {
    struct census *census = rebuild->census;
    const uint64_t references = tally_get(&census->tally, cluster);
    if (references > stored) return rebuild->raise ? references : stored;
    if (cluster >= max_u64(census->clusters, rebuild->next)) return stored;
    return rebuild->lower && !census->untraced ? references : stored;
}

static void count_change(struct rebuild *rebuild, uint64_t cluster, uint64_t stored, uint64_t wanted) {
    struct findings *findings = &rebuild->census->findings;
    if (cluster >= rebuild->census->clusters) return;
    if (wanted > stored) findings->corruptions_fixed++;
    else findings->leaks_fixed++;
}

/* Puts the counts of the clusters that the block covers into `buffer`. Returns which bytes of it changed. */
static struct range fill_block(struct rebuild *rebuild, uint64_t index) {
    struct census *census = rebuild->census;
    const unsigned order = census->geometry.refcount_order;
    const uint64_t first = first_of(rebuild, index);
    struct range changed = {0, 0};
    for (uint64_t i = 0; i < geometry_block_entries(&census->geometry); i++) {
        struct tally_page *page = tally_find(&census->tally, first + i);
        const uint64_t stored = bits_get(rebuild->buffer, order, i);
        const uint64_t wanted = page == NULL && stored == 0 ? 0 : target(rebuild, first + i, stored);
        if (page != NULL) page->stored[tally_in_page(first + i)] = (uint16_t) min_u64(wanted, UINT16_MAX);
        if (wanted == stored) continue;
        count_change(rebuild, first + i, stored, wanted);
        bits_set(rebuild->buffer, order, i, wanted);
        range_widen(&changed, (i << order) / 8, (((i + 1) << order) + 7) / 8);
    }
    return changed;
}

static int write_new_block(struct rebuild *rebuild, uint64_t index, uint64_t cluster, struct error *error) {
    const struct geometry *geometry = &rebuild->census->geometry;
    memset(rebuild->buffer, 0, geometry->cluster_size);
    fill_block(rebuild, index);
    return file_write(rebuild->census->file, geometry_offset(geometry, cluster), rebuild->buffer, geometry->cluster_size, error);
}

static int mend_block(struct rebuild *rebuild, uint64_t index, struct error *error) {
    struct census *census = rebuild->census;
    const uint64_t offset = census_block_offset(census, index);
    const int result = file_read(census->file, offset, rebuild->buffer, census->geometry.cluster_size, error);
    if (result < 0) return result;
    const struct range changed = fill_block(rebuild, index);
    if (range_empty(&changed)) return 0;
    const uint64_t start = round_down_u64(changed.start, SECTOR), end = round_up_u64(changed.end, SECTOR);
    return file_write(census->file, offset + start, rebuild->buffer + start, end - start, error);
}

static int write_blocks(struct rebuild *rebuild, struct error *error) {
    struct census *census = rebuild->census;
    const uint64_t end = max_u64(census->clusters, rebuild->next);
    int result = 0;
    for (uint64_t i = 0; result == 0 && i < census->refcount_entries && first_of(rebuild, i) < end; i++) {
        if (census->block_states[i] == BLOCK_SOUND) result = mend_block(rebuild, i, error);
    }
    for (uint64_t i = 0; result == 0 && i < rebuild->blocks.capacity; i++) {
        const struct number_pair *pair = &rebuild->blocks.pairs[i];
        if (pair->key != UINT64_MAX) result = write_new_block(rebuild, pair->key, pair->value, error);
    }
    return result == 0 ? file_sync(census->file, error) : result;
}

/* ---- the table ---- */

/* The table in memory as it shall be: longer if need be, with the new blocks. */
static int fill_table(struct rebuild *rebuild) {
    struct census *census = rebuild->census;
    const uint64_t entries = max_u64(rebuild->entries, census->refcount_entries);
    uint64_t *table = memory_array(max_u64(entries, 1), 8);
    uint8_t *states = memory_zeroed(max_u64(entries, 1));
    if (table == NULL || states == NULL) {
        memory_free(table);
        memory_free(states);
        return -ENOMEM;
    }
    if (census->refcount_entries > 0) {
        memcpy(table, census->refcount_table, census->refcount_entries * 8);
        memcpy(states, census->block_states, census->refcount_entries);
    }
    memory_free(census->refcount_table);
    memory_free(census->block_states);
    census->refcount_table = table;
    census->block_states = states;
    census->refcount_entries = entries;
    for (uint64_t i = 0; i < rebuild->blocks.capacity; i++) {
        const struct number_pair *pair = &rebuild->blocks.pairs[i];
        if (pair->key == UINT64_MAX) continue;
        table[pair->key] = geometry_offset(&census->geometry, pair->value);
        states[pair->key] = BLOCK_SOUND;
        note_change(rebuild, pair->key);
    }
    return 0;
}

static int write_entries(struct rebuild *rebuild, uint64_t table_offset, uint64_t start, uint64_t end, struct error *error) {
    uint8_t *bytes = memory_aligned(max_u64(8 * (end - start), 1));
    if (bytes == NULL) return error_set(error, -ENOMEM, "no memory for the refcount table");
    for (uint64_t i = start; i < end; i++) store_be64(bytes + 8 * (i - start), rebuild->census->refcount_table[i]);
    int result = file_write(rebuild->census->file, table_offset + 8 * start, bytes, 8 * (end - start), error);
    memory_free(bytes);
    return result == 0 ? file_sync(rebuild->census->file, error) : result;
}

static int write_pointer(struct rebuild *rebuild, struct error *error) {
    struct census *census = rebuild->census;
    uint8_t bytes[12];
    const uint64_t offset = geometry_offset(&census->geometry, rebuild->table);
    store_be64(bytes, offset);
    store_be32(bytes + 8, (uint32_t) rebuild->table_clusters);
    int result = file_write(census->file, POINTER_OFFSET, bytes, sizeof bytes, error);
    if (result == 0) result = file_sync(census->file, error);
    if (result < 0) return result;
    census->header.refcount_table_offset = offset;
    census->header.refcount_table_clusters = (uint32_t) rebuild->table_clusters;
    return 0;
}

static int write_table(struct rebuild *rebuild, struct error *error) {
    struct census *census = rebuild->census;
    if (rebuild->table_clusters > 0) {
        const int result = write_entries(rebuild, geometry_offset(&census->geometry, rebuild->table), 0, rebuild->entries, error);
        return result < 0 ? result : write_pointer(rebuild, error);
    }
    if (rebuild->changed_start == rebuild->changed_end) return 0;
    return write_entries(rebuild, census->header.refcount_table_offset, rebuild->changed_start, rebuild->changed_end, error);
}

/* ---- all of it ---- */

static int rebuild_structure(struct rebuild *rebuild, struct error *error) {
    struct census *census = rebuild->census;
    int result = 0;
    for (uint64_t i = 0; result == 0 && i < census->refcount_entries; i++) {
        if (census->block_states[i] != BLOCK_RESERVED) continue;
        result = adopt_reserved(rebuild, i);
        if (census->block_states[i] != BLOCK_SOUND) continue;
        note_change(rebuild, i);
        census->findings.corruptions_fixed++;
    }
    if (result == 0) result = plan_somewhere(rebuild, error);
    if (result == 0) result = drop_old(rebuild);
    if (result == 0 && census->refcount_table == NULL) census->findings.corruptions_fixed++;
    return result;
}

static void mark_repaired(struct rebuild *rebuild) {
    struct findings *findings = &rebuild->census->findings;
    for (uint64_t i = 0; i < findings->count; i++) {
        struct finding *finding = &findings->items[i];
        if (finding->kind == FINDING_LEAK) finding->repaired |= rebuild->lower && !rebuild->census->untraced;
        if (finding->kind == FINDING_REFCOUNT_LOW || finding->kind == FINDING_REFCOUNT_UNKNOWN) finding->repaired |= rebuild->raise;
        if (strcmp(finding->structure, "refcount table") == 0) finding->repaired |= rebuild->raise;
    }
}

int repair_refcounts(struct census *census, bool raise, bool lower, struct error *error) {
    struct rebuild rebuild = {
        .census = census, .raise = raise, .lower = lower, .entries = census->refcount_entries, .next = census->clusters};
    rebuild.buffer = memory_aligned(census->geometry.cluster_size);
    int result = rebuild.buffer == NULL ? -ENOMEM : 0;
    if (result == 0 && raise) result = rebuild_structure(&rebuild, error);
    if (result == 0) result = write_blocks(&rebuild, error);
    if (result == 0 && raise) result = fill_table(&rebuild);
    if (result == 0) result = write_table(&rebuild, error);
    if (result == 0) mark_repaired(&rebuild);
    if (result < 0) error_set(error, result, "no memory to repair the refcounts");
    numbers_clear(&rebuild.blocks);
    memory_free(rebuild.buffer);
    return result;
}
