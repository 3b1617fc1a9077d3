/* SPDX-License-Identifier: MIT
 *
 * The snapshot table, entry by entry with bounded memory, and the L1 tables that it names. Where L1 tables of snapshots lie on top of
 * each other, whole or in part, each of their entries is still read once: the tables' starts and ends are sorted, and
 * between two of them the number of tables that cover the place is how often an entry counts. Called by census.
 *
 * On disk an entry is: L1 offset u64, L1 entries u32, id length u16, name length u16, 16 bytes of times, VM state size u32,
 * extra data size u32 (40 bytes), then extra data, id and name, padded to 8.
 */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/bytes.h"
#include "base/memory.h"
#include "image/census.h"

#define ENTRY_FIXED 40u
#define EXTRA_MAX 1024u                /* bytes of extra data, as the reference caps it */
#define EXTRA_MIN 16u                  /* what version 3 must have */
#define TABLE_MAX (UINT64_C(64) << 20) /* bytes of the whole table, likewise */
#define PIECE_ENTRIES 4096u
#define SHOWN 40u /* bytes of an id or name in a sentence */

struct edge {        /* where some L1 tables begin or end */
    uint64_t offset; /* bytes */
    int64_t tables;  /* how many more cover what follows */
};

struct snapshots {
    struct census *census;
    struct edge *edges;
    uint64_t edge_count;
    uint64_t offset; /* of the entry that is being read */
};

struct snapshot {
    uint32_t index;
    uint64_t l1_offset, l1_entries;
    uint32_t id_length, name_length, extra_length;
    char id[SHOWN + 1], name[SHOWN + 1];
};

static struct finding about(const struct snapshots *walk, enum finding_kind kind) {
    return (struct finding){
        .kind = kind, .weight = WEIGHT_CORRUPTION, .structure = "snapshot table", .host_offset = walk->offset, .guest_offset = UINT64_MAX};
}

/* The rest of the table cannot be followed. */
static bool give_up(const struct snapshots *walk, const char *why, uint32_t index) {
    struct finding finding = about(walk, FINDING_TOO_LARGE);
    finding.weight = WEIGHT_CHECK_ERROR;
    walk->census->untraced = true;
    findings_add(&walk->census->findings, finding, "ERROR failed to read the snapshot table: %s in snapshot table entry %" PRIu32, why,
                 index);
    return false;
}

static bool read_text(const struct snapshots *walk, uint64_t offset, uint32_t length, char text[static SHOWN + 1]) {
    const uint32_t shown = (uint32_t) min_u64(length, SHOWN);
    memset(text, 0, SHOWN + 1);
    return shown == 0 || census_read(walk->census, offset, text, shown, "snapshot table");
}

static bool read_entry(const struct snapshots *walk, struct snapshot *snapshot) {
    uint8_t bytes[ENTRY_FIXED];
    if (!census_read(walk->census, walk->offset, bytes, sizeof bytes, "snapshot table")) return false;
    snapshot->l1_offset = load_be64(bytes);
    snapshot->l1_entries = load_be32(bytes + 8);
    snapshot->id_length = load_be16(bytes + 12);
    snapshot->name_length = load_be16(bytes + 14);
    snapshot->extra_length = load_be32(bytes + 36);
    if (snapshot->extra_length > EXTRA_MAX) return give_up(walk, "Too much extra metadata", snapshot->index);
    if (walk->offset - walk->census->header.snapshots_offset > TABLE_MAX) return give_up(walk, "Too many bytes", snapshot->index);
    const uint64_t id = walk->offset + ENTRY_FIXED + snapshot->extra_length;
    return read_text(walk, id, snapshot->id_length, snapshot->id) &&
           read_text(walk, id + snapshot->id_length, snapshot->name_length, snapshot->name);
}

static void note_edges(struct snapshots *walk, const struct snapshot *snapshot) {
    walk->edges[walk->edge_count++] = (struct edge){snapshot->l1_offset, 1};
    walk->edges[walk->edge_count++] = (struct edge){snapshot->l1_offset + 8 * snapshot->l1_entries, -1};
}

static int count_l1(struct snapshots *walk, const struct snapshot *snapshot) {
    struct census *census = walk->census;
    const struct census_place place = {"snapshot's L1 table", UINT64_MAX, 1};
    const uint64_t bytes = 8 * snapshot->l1_entries;
    struct finding finding = about(walk, FINDING_UNALIGNED);
    if (geometry_in_cluster(&census->geometry, snapshot->l1_offset) != 0) {
        census->untraced = true;
        findings_add(&census->findings, finding,
                     "ERROR snapshot %s (%s) l1_offset=0x%" PRIx64 ": L1 table is not cluster aligned; snapshot table entry corrupted",
                     snapshot->id, snapshot->name, snapshot->l1_offset);
        return 0;
    }
    if (bytes > FORMAT_L1_BYTES_MAX) {
        census->untraced = true;
        finding.kind = FINDING_TOO_LARGE;
        findings_add(&census->findings, finding,
                     "ERROR snapshot %s (%s) l1_size=0x%" PRIx64 ": L1 table is too large; snapshot table entry corrupted", snapshot->id,
                     snapshot->name, snapshot->l1_entries);
        return 0;
    }
    if (bytes > 0 && census_inside(census, snapshot->l1_offset, bytes)) note_edges(walk, snapshot);
    return census_add(census, snapshot->l1_offset, bytes, &place);
}

/* ---- L1 tables ---- */

static int by_offset(const void *left, const void *right) {
    const struct edge *a = left, *b = right;
    return a->offset < b->offset ? -1 : a->offset > b->offset;
}

/* The entries in [start, end), which `times` tables have. */
static int count_entries(struct census *census, uint64_t start, uint64_t end, uint64_t times, uint8_t *bytes) {
    while (start < end) {
        const uint64_t length = min_u64(8 * PIECE_ENTRIES, end - start);
        if (!census_read(census, start, bytes, length, "snapshot's L1 table")) return 0;
        for (uint64_t at = 0; at < length; at += 8) {
            const int result = census_l1_entry(census, load_be64(bytes + at), UINT64_MAX, times);
            if (result < 0) return result;
        }
        start += length;
    }
    return 0;
}

static int count_l1_tables(struct snapshots *walk) {
    uint8_t *bytes = memory_aligned(8 * PIECE_ENTRIES);
    int64_t covering = 0;
    int result = bytes == NULL ? -ENOMEM : 0;
    qsort(walk->edges, walk->edge_count, sizeof *walk->edges, by_offset);
    for (uint64_t i = 0; result == 0 && i + 1 < walk->edge_count; i++) {
        covering += walk->edges[i].tables;
        if (covering == 0) continue;
        result = count_entries(walk->census, walk->edges[i].offset, walk->edges[i + 1].offset, (uint64_t) covering, bytes);
    }
    memory_free(bytes);
    return result;
}

/* ---- the table ---- */

static int count_entry(struct snapshots *walk, const struct snapshot *snapshot) {
    if (snapshot->extra_length < EXTRA_MIN && walk->census->header.version >= 3) {
        findings_add(&walk->census->findings, about(walk, FINDING_INCOMPLETE), "ERROR snapshot table entry %" PRIu32 " is incomplete",
                     snapshot->index);
    }
    return count_l1(walk, snapshot);
}

static int walk_table(struct snapshots *walk) {
    struct census *census = walk->census;
    const uint64_t start = census->header.snapshots_offset;
    const struct census_place place = {"snapshot table", UINT64_MAX, 1};
    int result = 0;
    walk->offset = start;
    for (uint32_t i = 0; result == 0 && i < census->header.nb_snapshots; i++) {
        struct snapshot snapshot = {.index = i};
        if (!read_entry(walk, &snapshot)) break;
        result = count_entry(walk, &snapshot);
        const uint64_t variable = (uint64_t) snapshot.extra_length + snapshot.id_length + snapshot.name_length;
        walk->offset = round_up_u64(walk->offset + ENTRY_FIXED + variable, 8);
    }
    if (result == 0) result = count_l1_tables(walk);
    return result < 0 ? result : census_add(census, start, walk->offset - start, &place);
}

int census_snapshots(struct census *census) {
    struct snapshots walk = {.census = census, .offset = census->header.snapshots_offset};
    if (census->header.nb_snapshots == 0) return 0;
    if (geometry_in_cluster(&census->geometry, walk.offset) != 0 || walk.offset > INT64_MAX / 2) {
        give_up(&walk, "The offset is invalid", 0);
        return 0;
    }
    if (census->header.nb_snapshots > FORMAT_SNAPSHOTS_MAX) {
        give_up(&walk, "There are more than 65536 snapshots", FORMAT_SNAPSHOTS_MAX);
        return 0;
    }
    walk.edges = memory_array(2 * (size_t) census->header.nb_snapshots, sizeof *walk.edges);
    if (walk.edges == NULL) return -ENOMEM;
    const int result = walk_table(&walk);
    memory_free(walk.edges);
    return result;
}
