/* SPDX-License-Identifier: MIT
 *
 * The one door to the heap.
 *
 * Every allocation takes a ticket, the number of allocations asked for so far. memory_fail_at names the ticket that
 * fails, so injection costs one relaxed load, works across threads and hits exactly once.
 * Invariant: held = blocks given out and not yet given back. Aligned and plain blocks both end in free().
 * Never aborts, never keeps a cache of its own. Called by every storey.
 */
#include "base/memory.h"

#include <stdatomic.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

static _Atomic uint64_t asked, held, failing_ticket; /* failing_ticket: 0 = none */

/* Not const, so that it lies in .bss; nobody gets a pointer that may write. */
static uint8_t zeroes[MEMORY_ZEROES_SIZE] __attribute__((aligned(MEMORY_ALIGNMENT)));

static bool refused(void) {
    const uint64_t ticket = atomic_fetch_add_explicit(&asked, 1, memory_order_relaxed) + 1;
    return ticket == atomic_load_explicit(&failing_ticket, memory_order_relaxed);
}

static void *counted(void *block) {
    if (block) atomic_fetch_add_explicit(&held, 1, memory_order_relaxed);
    return block;
}

void *memory_array(size_t count, size_t size) {
    size_t total;
    if (refused() || __builtin_mul_overflow(count, size, &total) || total > PTRDIFF_MAX) return NULL;
    return counted(calloc(1, total ? total : 1));
}

void *memory_zeroed(size_t size) { return memory_array(1, size); }

void *memory_aligned(size_t size) {
    void *block;
    if (refused() || size > PTRDIFF_MAX) return NULL;
    if (posix_memalign(&block, MEMORY_ALIGNMENT, size ? size : 1) != 0) return NULL;
    return counted(block);
}

void *memory_resize(void *block, size_t size) {
    if (refused() || size > PTRDIFF_MAX) return NULL;
    void *resized = realloc(block, size ? size : 1);
    return block ? resized : counted(resized);
}

char *memory_text(const char *text, size_t length) {
    if (length == SIZE_MAX) return NULL;
    char *copy = memory_zeroed(length + 1);
    if (copy && length > 0) memcpy(copy, text, length);
    return copy;
}

void memory_free(void *block) {
    if (!block) return;
    atomic_fetch_sub_explicit(&held, 1, memory_order_relaxed);
    free(block);
}

const uint8_t *memory_zeroes(void) { return zeroes; }

void memory_fail_at(uint64_t nth) {
    const uint64_t ticket = nth ? atomic_load_explicit(&asked, memory_order_relaxed) + nth : 0;
    atomic_store_explicit(&failing_ticket, ticket, memory_order_relaxed);
}

uint64_t memory_asked(void) { return atomic_load_explicit(&asked, memory_order_relaxed); }

uint64_t memory_held(void) { return atomic_load_explicit(&held, memory_order_relaxed); }
