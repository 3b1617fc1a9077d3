/* SPDX-License-Identifier: MIT
 *
 * Refcount blocks are read one at a time and compared page by page with the tally; what neither the block nor the tally has anything
 * for is skipped whole. Clusters that no block covers are looked at only where the tally has a page, so the time follows
 * what is in the file. The COPIED flags that active entries carry are in the tally too: L2 tables are
 * read a second time only when one of them is wrong. Called by checkup and repair.
 */
#include "image/check.h"

#include <inttypes.h>
#include <string.h>

#include "base/bytes.h"

/* ---- refcounts ---- */

static void differ(struct census *census, uint64_t cluster, uint64_t stored, uint64_t references) {
    const bool leak = stored > references;
    findings_add(&census->findings,
                 (struct finding){.kind = leak ? FINDING_LEAK : FINDING_REFCOUNT_LOW,
                                  .weight = leak ? WEIGHT_LEAK : WEIGHT_CORRUPTION,
                                  .structure = "refcount block",
                                  .host_offset = geometry_offset(&census->geometry, cluster),
                                  .guest_offset = UINT64_MAX},
                 "%s cluster %" PRIu64 " refcount=%" PRIu64 " reference=%" PRIu64, leak ? "Leaked" : "ERROR", cluster, stored, references);
}

static void compare(struct census *census, struct tally_page *page, uint64_t cluster, uint64_t stored) {
    const uint64_t references = page == NULL ? 0 : tally_get(&census->tally, cluster);
    if (page != NULL) page->stored[tally_in_page(cluster)] = (uint16_t) min_u64(stored, UINT16_MAX);
    if ((stored | references) == 0) return;
    census->end = max_u64(census->end, cluster + 1);
    census->counts_lost |= stored == 0;
    if (stored != references) differ(census, cluster, stored, references);
}

static bool all_zero(const uint8_t *bytes, size_t length) {
    return length == 0 || (bytes[0] == 0 && memcmp(bytes, bytes + 1, length - 1) == 0);
}

/* Clusters of [from, end), all in one page and one block, whose counts begin at bit `bit` of `block`. */
static void compare_stretch(struct census *census, uint64_t from, uint64_t end, const uint8_t *block) {
    struct tally_page *page = tally_find(&census->tally, from);
    const unsigned order = census->geometry.refcount_order;
    const uint64_t first = geometry_in_block(&census->geometry, from);
    const uint64_t first_bit = first << order, bits = (end - from) << order;
    if (page == NULL && first_bit % 8 == 0 && bits % 8 == 0 && all_zero(block + first_bit / 8, bits / 8)) return;
    for (uint64_t cluster = from; cluster < end; cluster++) compare(census, page, cluster, bits_get(block, order, first + cluster - from));
}

static void compare_block(struct census *census, uint64_t first, uint64_t end, const uint8_t *block) {
    for (uint64_t from = first; from < end;) {
        const uint64_t stop = min_u64(end, round_down_u64(from, TALLY_PAGE) + TALLY_PAGE);
        compare_stretch(census, from, stop, block);
        from = stop;
    }
}

/* No counts can be had for [first, end); as many as have room are listed. */
static void note_unknown(struct census *census, uint64_t first, uint64_t end) {
    for (uint64_t cluster = first; cluster < end; cluster++) {
        struct finding finding = {.kind = FINDING_REFCOUNT_UNKNOWN,
                                  .weight = WEIGHT_CHECK_ERROR,
                                  .structure = "refcount table",
                                  .host_offset = geometry_offset(&census->geometry, cluster),
                                  .guest_offset = UINT64_MAX};
        const bool full = census->findings.count == census->findings.most;
        if (full) finding.times = end - cluster;
        findings_add(&census->findings, finding, "Can't get refcount for cluster %" PRIu64 ": Input/output error", cluster);
        if (full) return;
    }
}

/* Where no block is, every stored count is 0. */
static void compare_uncovered(struct census *census, uint64_t first, uint64_t end) {
    const struct tally *tally = &census->tally;
    uint64_t low = 0, high = tally->page_count;
    while (low < high) { /* the first page that ends behind `first` */
        const uint64_t middle = (low + high) / 2;
        if (tally->pages[middle]->first + TALLY_PAGE <= first) low = middle + 1;
        else high = middle;
    }
    for (; low < tally->page_count && tally->pages[low]->first < end; low++) {
        struct tally_page *page = tally->pages[low];
        const uint64_t stop = min_u64(end, page->first + TALLY_PAGE);
        for (uint64_t cluster = max_u64(first, page->first); cluster < stop; cluster++) compare(census, page, cluster, 0);
    }
}

static void check_block(struct census *census, uint64_t index, uint64_t end) {
    const uint64_t first = index << census->geometry.block_bits;
    const uint64_t stop = min_u64(end, first + geometry_block_entries(&census->geometry));
    switch (census->block_states[index]) {
        case BLOCK_NONE:
        case BLOCK_OUTSIDE: compare_uncovered(census, first, stop); return;
        case BLOCK_UNKNOWN: note_unknown(census, first, stop); return;
        default: break;
    }
    const bool untraced = census->untraced;
    if (census_read(census, census_block_offset(census, index), census->buffer, census->geometry.cluster_size, "refcount block")) {
        compare_block(census, first, stop, census->buffer);
        return;
    }
    census->untraced = untraced; /* references were all counted */
    census->block_states[index] = BLOCK_UNKNOWN;
    census->structure_damaged = true;
}

int check_refcounts(struct census *census) {
    uint64_t covered = 0; /* clusters that table entries stand for */
    for (uint64_t i = 0; i < census->refcount_entries && covered < census->clusters; i++) {
        check_block(census, i, census->clusters);
        covered = (i + 1) << census->geometry.block_bits;
    }
    if (covered < census->clusters) compare_uncovered(census, covered, census->clusters);
    return 0;
}

/* ---- COPIED ---- */

static uint16_t stored_at(struct census *census, uint64_t host_offset) {
    const uint64_t cluster = geometry_cluster(&census->geometry, host_offset);
    const struct tally_page *page = tally_find(&census->tally, cluster);
    return page == NULL ? 0 : page->stored[tally_in_page(cluster)];
}

/* Counts that cannot be read say nothing about a flag. */
static bool is_known(const struct census *census, uint64_t host_offset) {
    const uint64_t index = geometry_block_index(&census->geometry, geometry_cluster(&census->geometry, host_offset));
    return index >= census->refcount_entries || census->block_states[index] != BLOCK_UNKNOWN;
}

bool check_is_single(struct census *census, uint64_t host_offset) { return stored_at(census, host_offset) == 1; }

bool check_entry_copied_wrong(struct census *census, uint64_t entry) {
    const uint64_t host_offset = entry & FORMAT_ENTRY_OFFSET;
    const bool copied = (entry & FORMAT_ENTRY_COPIED) != 0;
    if ((entry & FORMAT_ENTRY_COMPRESSED) != 0 || host_offset == 0) return false;
    if (census->data_file) return !copied;
    return is_known(census, host_offset) && check_is_single(census, host_offset) != copied;
}

static struct finding about(const char *structure, uint64_t host_offset, uint64_t guest_offset) {
    return (struct finding){.kind = FINDING_COPIED,
                            .weight = WEIGHT_CORRUPTION,
                            .structure = structure,
                            .host_offset = host_offset,
                            .guest_offset = guest_offset};
}

static void check_table(struct census *census, const struct census_table *table) {
    const struct geometry *geometry = &census->geometry;
    if (!census_read(census, table->host_offset, census->buffer, geometry->cluster_size, "L2 table")) return;
    for (uint64_t i = 0; i >> geometry->l2_bits == 0; i++) {
        const uint64_t entry = load_be64(census->buffer + i * geometry->l2_entry_size);
        if (!check_entry_copied_wrong(census, entry)) continue;
        struct finding finding = about("L2 table", entry & FORMAT_ENTRY_OFFSET, table->guest_offset + (i << geometry->cluster_bits));
        finding.times = table->active;
        findings_add(&census->findings, finding, "ERROR OFLAG_COPIED data cluster: l2_entry=%" PRIx64 " refcount=%u", entry,
                     census->data_file ? 1u : stored_at(census, entry & FORMAT_ENTRY_OFFSET));
    }
}

/* Whether some active L2 entry is known to be wrong, by what the tally noted of their flags. */
static bool any_entry_wrong(const struct census *census) {
    const struct tally *tally = &census->tally;
    for (uint64_t i = 0; i < tally->page_count; i++) {
        const struct tally_page *page = tally->pages[i];
        for (uint64_t j = 0; j < TALLY_PAGE; j++) {
            const uint8_t *flags = page->stored[j] == 1 ? page->uncopied : page->copied;
            if ((flags[j / 8] >> j % 8 & 1) != 0) return true;
        }
    }
    return census->uncopied_data;
}

void check_copied(struct census *census) {
    const bool entries_wrong = any_entry_wrong(census) || census->copied_outside;
    for (uint64_t i = 0; i < census->header.l1_size; i++) {
        const uint64_t entry = census->l1[i], host_offset = entry & FORMAT_ENTRY_OFFSET;
        if (host_offset == 0) continue;
        const uint64_t guest_offset = i * geometry_l2_span(&census->geometry);
        const bool copied = (entry & FORMAT_ENTRY_COPIED) != 0;
        if (is_known(census, host_offset) && check_is_single(census, host_offset) != copied) {
            findings_add(&census->findings, about("L1 table", host_offset, guest_offset),
                         "ERROR OFLAG_COPIED L2 cluster: l1_index=%" PRIu64 " l1_entry=%" PRIx64 " refcount=%u", i, entry,
                         stored_at(census, host_offset));
        }
        if (!entries_wrong) continue;
        const uint64_t *place = numbers_get(&census->table_places, host_offset);
        const struct census_table *table = place == NULL ? NULL : &census->tables[*place - 1];
        if (table != NULL && table->guest_offset == guest_offset) check_table(census, table);
    }
}
