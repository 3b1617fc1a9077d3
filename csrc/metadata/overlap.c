/* SPDX-License-Identifier: MIT
 *
 * Open addressing with linear probing. An entry is one word: host cluster above, kinds below, so a look-up touches one
 * cache line in the common case. Removal leaves the key with no kinds behind; growing sweeps those away.
 * Invariant: used (with removed ones) stays below 3/4 of capacity. Called by the metadata rooms and by request.
 */
#include "metadata/overlap.h"

#include <string.h>

#include "base/bytes.h"
#include "base/memory.h"

#define KIND_BITS 16u
#define KIND_MASK ((UINT64_C(1) << KIND_BITS) - 1)
#define GONE (UINT64_C(1) << 15) /* keeps a removed entry's word from being 0 */

void overlap_init(struct overlap *overlap, unsigned checked) { *overlap = (struct overlap){.checked = checked}; }

void overlap_destroy(struct overlap *overlap) {
    memory_free(overlap->entries);
    memset(overlap, 0, sizeof *overlap);
}

/* The entry of the cluster, or the free place where it would go; capacity must not be 0. */
static uint64_t *place_of(const struct overlap *overlap, uint64_t host_cluster) {
    const uint64_t mask = overlap->capacity - 1;
    uint64_t at = (host_cluster * UINT64_C(0x9e3779b97f4a7c15)) >> 20 & mask;
    while (overlap->entries[at] != 0 && overlap->entries[at] >> KIND_BITS != host_cluster) at = (at + 1) & mask;
    return &overlap->entries[at];
}

static int resize(struct overlap *overlap, uint64_t capacity) {
    struct overlap grown = {.checked = overlap->checked, .capacity = capacity};
    grown.entries = memory_array(capacity, sizeof *grown.entries);
    if (grown.entries == NULL) return -ENOMEM;
    for (uint64_t i = 0; i < overlap->capacity; i++) {
        const uint64_t entry = overlap->entries[i];
        if ((entry & KIND_MASK & ~GONE) == 0) continue;
        *place_of(&grown, entry >> KIND_BITS) = entry;
        grown.used++;
    }
    memory_free(overlap->entries);
    *overlap = grown;
    return 0;
}

int overlap_reserve(struct overlap *overlap, uint64_t count) {
    if (overlap->entries != NULL && overlap->used + count <= overlap->capacity / 4 * 3) return 0;
    uint64_t capacity = 64, live = 0;
    for (uint64_t i = 0; i < overlap->capacity; i++) live += (overlap->entries[i] & KIND_MASK & ~GONE) != 0;
    while (capacity / 2 < live + count) capacity *= 2;
    return resize(overlap, capacity);
}

int overlap_add(struct overlap *overlap, enum overlap_kind kind, uint64_t host_cluster, uint64_t count) {
    if ((overlap->checked & kind) == 0) return 0;
    const int result = overlap_reserve(overlap, count);
    if (result < 0) return result;
    for (uint64_t i = 0; i < count; i++) {
        uint64_t *place = place_of(overlap, host_cluster + i);
        overlap->used += *place == 0;
        *place = (host_cluster + i) << KIND_BITS | (*place & KIND_MASK & ~GONE) | kind;
    }
    return 0;
}

void overlap_remove(struct overlap *overlap, enum overlap_kind kind, uint64_t host_cluster, uint64_t count) {
    if ((overlap->checked & kind) == 0 || overlap->capacity == 0) return;
    for (uint64_t i = 0; i < count; i++) {
        uint64_t *place = place_of(overlap, host_cluster + i);
        if (*place == 0) continue;
        *place &= ~(uint64_t) kind;
        if ((*place & KIND_MASK) == 0) *place |= GONE;
    }
}

unsigned overlap_find(const struct overlap *overlap, uint64_t host_cluster, uint64_t count, uint64_t *at) {
    if (overlap->used == 0) return 0;
    for (uint64_t i = 0; i < count; i++) {
        const unsigned kinds = (unsigned) (*place_of(overlap, host_cluster + i) & KIND_MASK & ~GONE);
        if (kinds != 0) {
            *at = host_cluster + i;
            return kinds;
        }
    }
    return 0;
}

int overlap_refuse_free(const struct overlap *overlap, uint64_t host_cluster, uint64_t count, unsigned cluster_bits, struct error *error) {
    uint64_t at = host_cluster;
    const unsigned kinds = host_cluster == 0 ? OVERLAP_MAIN_HEADER : overlap_find(overlap, host_cluster, count, &at);
    if (kinds == 0) return 0;
    return error_set(error, ERROR_CORRUPT, "the free host cluster at offset %llu (refcount 0) holds the %s: preventing an overwrite",
                     (unsigned long long) (at << cluster_bits), overlap_kind_name(kinds));
}

const char *overlap_kind_name(unsigned kinds) {
    static const char *const names[] = {"main header",    "active L1 table",   "active L2 table",   "refcount table",  "refcount block",
                                        "snapshot table", "inactive L1 table", "inactive L2 table", "bitmap directory"};
    for (unsigned i = 0; i < sizeof names / sizeof *names; i++) {
        if ((kinds >> i & 1) != 0) return names[i];
    }
    return "no metadata";
}
