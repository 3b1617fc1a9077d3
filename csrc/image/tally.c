/* SPDX-License-Identifier: MIT
 *
 * Pages found through a hash, with the last one at hand, since references mostly come in rows. A count that 16 bits do not
 * hold says MANY there, and the number is in a map beside. Called by census, check and repair; one thread at a time.
 */
#include "image/tally.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/bytes.h"
#include "base/memory.h"

#define MANY UINT16_MAX

void tally_init(struct tally *tally, uint64_t memory_limit) {
    *tally = (struct tally){.page_most = max_u64(memory_limit / sizeof(struct tally_page), 16)};
}

void tally_destroy(struct tally *tally) {
    for (uint64_t i = 0; i < tally->page_count; i++) memory_free(tally->pages[i]);
    memory_free(tally->pages);
    numbers_clear(&tally->places);
    numbers_clear(&tally->many);
    memset(tally, 0, sizeof *tally);
}

static int make_room(struct tally *tally) {
    if (tally->page_count < tally->page_capacity) return 0;
    const uint64_t capacity = max_u64(2 * tally->page_capacity, 64);
    struct tally_page **pages = memory_resize(tally->pages, capacity * sizeof(struct tally_page *));
    if (pages == NULL) return -ENOMEM;
    tally->pages = pages;
    tally->page_capacity = capacity;
    return 0;
}

static struct tally_page *make_page(struct tally *tally, uint64_t number) {
    if (tally->page_count == tally->page_most || make_room(tally) < 0) return NULL;
    struct tally_page *page = memory_zeroed(sizeof *page);
    uint64_t *place = page == NULL ? NULL : numbers_put(&tally->places, number);
    if (place == NULL) {
        memory_free(page);
        return NULL;
    }
    *place = tally->page_count;
    page->first = number << TALLY_PAGE_BITS;
    tally->pages[tally->page_count++] = page;
    return page;
}

struct tally_page *tally_find(struct tally *tally, uint64_t host_cluster) {
    const uint64_t first = round_down_u64(host_cluster, TALLY_PAGE);
    if (tally->last != NULL && tally->last->first == first) return tally->last;
    const uint64_t *place = numbers_get(&tally->places, first >> TALLY_PAGE_BITS);
    if (place == NULL) return NULL;
    return tally->last = tally->pages[*place];
}

struct tally_page *tally_page(struct tally *tally, uint64_t host_cluster) {
    struct tally_page *page = tally_find(tally, host_cluster);
    if (page == NULL) page = make_page(tally, host_cluster >> TALLY_PAGE_BITS);
    if (page != NULL) tally->last = page;
    return page;
}

uint64_t tally_get(struct tally *tally, uint64_t host_cluster) {
    const struct tally_page *page = tally_find(tally, host_cluster);
    if (page == NULL) return 0;
    const uint16_t references = page->references[tally_in_page(host_cluster)];
    return references == MANY ? *numbers_get(&tally->many, host_cluster) : references;
}

int tally_set(struct tally *tally, uint64_t host_cluster, uint64_t references) {
    struct tally_page *page = tally_page(tally, host_cluster);
    uint64_t *many = NULL;
    if (page == NULL) return -ENOMEM;
    if (references >= MANY) {
        many = numbers_put(&tally->many, host_cluster);
        if (many == NULL) return -ENOMEM;
        *many = references;
    }
    page->references[tally_in_page(host_cluster)] = (uint16_t) min_u64(references, MANY);
    return 0;
}

int tally_add(struct tally *tally, uint64_t host_cluster, uint64_t count) {
    struct tally_page *page = tally_page(tally, host_cluster);
    if (page == NULL) return -ENOMEM;
    uint16_t *references = &page->references[tally_in_page(host_cluster)];
    if (*references + count < MANY) {
        *references = (uint16_t) (*references + count);
        return 0;
    }
    return tally_set(tally, host_cluster, tally_get(tally, host_cluster) + count);
}

static int by_first(const void *left, const void *right) {
    const struct tally_page *const *a = left, *const *b = right;
    return (*a)->first < (*b)->first ? -1 : (*a)->first > (*b)->first;
}

void tally_sort(struct tally *tally) {
    if (tally->page_count == 0) return;
    qsort(tally->pages, tally->page_count, sizeof(struct tally_page *), by_first);
    for (uint64_t i = 0; i < tally->page_count; i++) *numbers_get(&tally->places, tally->pages[i]->first >> TALLY_PAGE_BITS) = i;
}
