/* SPDX-License-Identifier: MIT
 *
 * L2 tables: each is read once, and what its entries name is counted as often as L1 entries name the table. An entry that contradicts the
 * format is a finding; where it names host clusters these are counted all the same. Entries are judged here by their bits and not
 * through cluster_decode, because what is wrong with an invalid one is the question. Called by census.
 */
#include "image/census.h"

#include <inttypes.h>

#include "base/bytes.h"

#define SECTOR 512u
#define RESERVED UINT64_C(0x3f000000000001fe) /* bits 1–8 and 56–61 of a standard entry */
#define SUBCLUSTERS_ALLOCATED UINT64_C(0xffffffff)

struct entry { /* one L2 entry on its way */
    struct census *census;
    const struct census_table *table;
    uint32_t index;
    uint64_t bits, bitmap, host_offset;
    uint64_t expected; /* host offset right behind the entry before; 0: none */
};

static uint64_t guest_offset(const struct entry *entry) {
    if (entry->table->guest_offset == UINT64_MAX) return UINT64_MAX;
    return entry->table->guest_offset + ((uint64_t) entry->index << entry->census->geometry.cluster_bits);
}

static struct finding about(const struct entry *entry, enum finding_kind kind) {
    return (struct finding){.kind = kind,
                            .weight = WEIGHT_CORRUPTION,
                            .structure = "L2 table",
                            .host_offset = entry->table->host_offset + (uint64_t) entry->index * entry->census->geometry.l2_entry_size,
                            .guest_offset = guest_offset(entry),
                            .times = entry->table->references};
}

static int count_compressed(const struct entry *entry) {
    struct census *census = entry->census;
    const unsigned offset_bits = 62 - (census->geometry.cluster_bits - 8);
    const uint64_t offset = entry->bits & ((UINT64_C(1) << offset_bits) - 1);
    const uint64_t sectors = (entry->bits >> offset_bits & ((UINT64_C(1) << (census->geometry.cluster_bits - 8)) - 1)) + 1;
    const struct census_place place = {"compressed cluster", guest_offset(entry), entry->table->references};
    const bool copied = (entry->bits & FORMAT_ENTRY_COPIED) != 0;
    if (copied) {
        findings_add(&census->findings, about(entry, FINDING_CONTRADICTION),
                     "ERROR: coffset=0x%" PRIx64 ": copied flag must never be set for compressed clusters", offset);
    }
    if (census->data_file || entry->bitmap != 0) {
        census->untraced = true;
        findings_add(&census->findings, about(entry, FINDING_CONTRADICTION),
                     census->data_file ? "ERROR compressed cluster %" PRIu32 " with data file, entry=0x%" PRIx64
                                       : "ERROR compressed cluster %" PRIu32
                                         " with non-zero subcluster allocation bitmap, entry=0x%" PRIx64,
                     entry->index, entry->bits);
        return 0;
    }
    census->allocated += entry->table->active;
    census->compressed += entry->table->active;
    census->fragmented += entry->table->active;
    return census_add(census, round_down_u64(offset, SECTOR), sectors * SECTOR, &place);
}

static bool holds_data(const struct entry *entry) {
    if (entry->census->geometry.extended_l2) return (entry->bitmap & SUBCLUSTERS_ALLOCATED) != 0;
    return (entry->bits & FORMAT_ENTRY_ZERO) == 0;
}

static void judge_standard(const struct entry *entry) {
    struct census *census = entry->census;
    const bool data = holds_data(entry);
    if (census->geometry.extended_l2 && (entry->bitmap >> 32 & entry->bitmap & SUBCLUSTERS_ALLOCATED) != 0) {
        findings_add(&census->findings, about(entry, FINDING_CONTRADICTION),
                     "ERROR offset=%" PRIx64 ": Allocated cluster has corrupted subcluster allocation bitmap", entry->host_offset);
    }
    if (geometry_in_cluster(&census->geometry, entry->host_offset) == 0) return;
    if (data) census->untraced = true;
    else census->zeroes_unaligned++;
    struct finding finding = about(entry, FINDING_UNALIGNED);
    if (!data) finding.structure = CENSUS_PREALLOCATED;
    findings_add(&census->findings, finding, "ERROR offset=%" PRIx64 ": %s cluster is not properly aligned; L2 entry corrupted.",
                 entry->host_offset, data ? "Data" : "Preallocated");
}

/* Notes which flag active entries give the cluster, so that check can tell without reading the tables again whether one is wrong. */
static int note_copied(const struct entry *entry) {
    struct census *census = entry->census;
    const uint64_t cluster = geometry_cluster(&census->geometry, entry->host_offset);
    const bool copied = (entry->bits & FORMAT_ENTRY_COPIED) != 0;
    if (entry->table->active == 0) return 0;
    if (!census_inside(census, entry->host_offset, 1)) {
        census->copied_outside |= copied;
        return 0;
    }
    struct tally_page *page = tally_page(&census->tally, cluster);
    if (page == NULL) return -ENOMEM;
    uint8_t *flags = copied ? page->copied : page->uncopied;
    flags[tally_in_page(cluster) / 8] |= (uint8_t) (1u << (cluster % 8));
    return 0;
}

static int count_standard(struct entry *entry) {
    struct census *census = entry->census;
    const struct census_place place = {"data cluster", guest_offset(entry), entry->table->references};
    const bool at_zero = census->data_file && (entry->bits & FORMAT_ENTRY_COPIED) != 0; /* a place like any other there */
    entry->host_offset = entry->bits & FORMAT_ENTRY_OFFSET;
    if ((entry->bits & RESERVED) != 0) {
        findings_add(&census->findings, about(entry, FINDING_RESERVED), "ERROR found l2 entry with reserved bits set: %" PRIx64,
                     entry->bits);
    }
    if (entry->host_offset == 0 && !at_zero) {
        if ((entry->bitmap & SUBCLUSTERS_ALLOCATED) == 0) return 0;
        census->untraced = true;
        findings_add(&census->findings, about(entry, FINDING_CONTRADICTION),
                     "ERROR: Unallocated cluster has non-zero subcluster allocation map");
        return 0;
    }
    judge_standard(entry);
    census->allocated += entry->table->active;
    if (entry->expected != 0 && entry->host_offset != entry->expected) census->fragmented += entry->table->active;
    entry->expected = entry->host_offset + census->geometry.cluster_size;
    if (census->data_file) {
        census->uncopied_data |= (entry->bits & FORMAT_ENTRY_COPIED) == 0 && entry->table->active > 0;
        return 0;
    }
    const int result = census_add(census, entry->host_offset, census->geometry.cluster_size, &place);
    return result < 0 ? result : note_copied(entry);
}

static int count_table(struct census *census, const struct census_table *table) {
    const struct geometry *geometry = &census->geometry;
    struct entry entry = {.census = census, .table = table};
    int result = 0;
    if (!census_read(census, table->host_offset, census->buffer, geometry->cluster_size, "L2 table")) return 0;
    for (; result == 0 && entry.index >> geometry->l2_bits == 0; entry.index++) {
        const uint8_t *bytes = census->buffer + (size_t) entry.index * geometry->l2_entry_size;
        entry.bits = load_be64(bytes);
        entry.bitmap = geometry->extended_l2 ? load_be64(bytes + 8) : 0;
        if ((entry.bits | entry.bitmap) == 0) continue;
        result = (entry.bits & FORMAT_ENTRY_COMPRESSED) != 0 ? count_compressed(&entry) : count_standard(&entry);
    }
    return result;
}

int census_l2_tables(struct census *census) {
    int result = 0;
    for (uint64_t i = 0; result == 0 && i < census->table_count; i++) result = count_table(census, &census->tables[i]);
    return result;
}
