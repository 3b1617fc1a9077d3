/* SPDX-License-Identifier: MIT
 *
 * A sparse file in memory: a hash table of 64 KiB pages, chained, keyed by page index.
 *
 * Invariant: what has no page is zero, and no page holds anything but zeroes at or past `length`. So reads need not know
 * the length, growing costs nothing, and shrinking zeroes the tail. A page comes into being when something that is
 * not zero is written to it, and goes when all of it is zeroed; a write that finds no memory leaves the pieces before
 * it written, as a disk would. One rwlock: reads share it, changes own it.
 * Called through file.h by specs, by queues without a disk, and by file_fault for what is durable.
 */
#include "storage/file_memory.h"

#include <pthread.h>
#include <string.h>

#include "base/bytes.h"
#include "base/memory.h"
#include "storage/vector.h"

#define PAGE_BITS 16u
#define PAGE_SIZE (UINT64_C(1) << PAGE_BITS)
#define BUCKET_BITS_FIRST 4u

_Static_assert(PAGE_SIZE <= MEMORY_ZEROES_SIZE, "a page is compared with memory_zeroes");

struct page {
    struct page *next;
    uint64_t index;
    uint8_t bytes[PAGE_SIZE];
};

struct file_memory {
    struct file file;
    pthread_rwlock_t lock; /* over everything below */
    struct page **buckets; /* 1 << bucket_bits chains */
    unsigned bucket_bits;
    size_t page_count;
    uint64_t length;
};

/* Where the page is linked: *result is the page, or NULL at its chain's end. */
static struct page **link_of(const struct file_memory *memory, uint64_t index) {
    struct page **link = &memory->buckets[index * UINT64_C(0x9e3779b97f4a7c15) >> (64 - memory->bucket_bits)];
    while (*link && (*link)->index != index) link = &(*link)->next;
    return link;
}

/* Doubles the table. Without memory for it the chains only get longer. */
static void rehash(struct file_memory *memory) {
    const size_t old_count = (size_t) 1 << memory->bucket_bits;
    struct page **old = memory->buckets, **buckets = memory_array(old_count * 2, sizeof *buckets);
    if (!buckets) return;
    memory->buckets = buckets;
    memory->bucket_bits++;
    for (size_t i = 0; i < old_count; i++)
        for (struct page *page = old[i], *next; page; page = next) {
            next = page->next;
            page->next = NULL;
            *link_of(memory, page->index) = page;
        }
    memory_free(old);
}

static struct page *add_page(struct file_memory *memory, uint64_t index) {
    struct page *page = memory_zeroed(sizeof *page);
    if (!page) return NULL;
    page->index = index;
    if (memory->page_count++ >> memory->bucket_bits) rehash(memory);
    *link_of(memory, index) = page;
    return page;
}

/* Writes within one page. */
static int write_piece(struct file_memory *memory, uint64_t offset, const uint8_t *bytes, size_t length) {
    struct page *page = *link_of(memory, offset >> PAGE_BITS);
    if (!page && memcmp(bytes, memory_zeroes(), length) != 0) {
        page = add_page(memory, offset >> PAGE_BITS);
        if (!page) return -ENOMEM;
    }
    if (page) memcpy(page->bytes + (offset & (PAGE_SIZE - 1)), bytes, length);
    memory->length = max_u64(memory->length, offset + length);
    return 0;
}

static void read_piece(const struct file_memory *memory, uint64_t offset, uint8_t *bytes, size_t length) {
    const struct page *page = *link_of(memory, offset >> PAGE_BITS);
    if (page) memcpy(bytes, page->bytes + (offset & (PAGE_SIZE - 1)), length);
    else memset(bytes, 0, length);
}

/* The part of the cursor's entry that lies in the page of `offset`. */
static struct iovec piece_in_page(const struct vector_cursor *cursor, uint64_t offset) {
    struct iovec piece = vector_piece(cursor);
    piece.iov_len = min_u64(piece.iov_len, PAGE_SIZE - (offset & (PAGE_SIZE - 1)));
    return piece;
}

static int memory_readv(struct file *file, uint64_t offset, const struct iovec *vector, int count) {
    struct file_memory *memory = (struct file_memory *) file;
    struct vector_cursor cursor = vector_start(vector, count);
    pthread_rwlock_rdlock(&memory->lock);
    while (cursor.count > 0) {
        const struct iovec piece = piece_in_page(&cursor, offset);
        read_piece(memory, offset, piece.iov_base, piece.iov_len);
        vector_skip(&cursor, piece.iov_len);
        offset += piece.iov_len;
    }
    pthread_rwlock_unlock(&memory->lock);
    return 0;
}

static int memory_writev(struct file *file, uint64_t offset, const struct iovec *vector, int count) {
    struct file_memory *memory = (struct file_memory *) file;
    struct vector_cursor cursor = vector_start(vector, count);
    int result = 0;
    pthread_rwlock_wrlock(&memory->lock);
    while (cursor.count > 0 && result == 0) {
        const struct iovec piece = piece_in_page(&cursor, offset);
        result = write_piece(memory, offset, piece.iov_base, piece.iov_len);
        vector_skip(&cursor, piece.iov_len);
        offset += piece.iov_len;
    }
    pthread_rwlock_unlock(&memory->lock);
    return result;
}

/* Zeroes what [start, end) covers of the page at `link`; takes the page out when that is all of it. */
static void clear_page(struct file_memory *memory, struct page **link, uint64_t start, uint64_t end) {
    struct page *page = *link;
    const uint64_t base = page->index << PAGE_BITS;
    const uint64_t from = max_u64(start, base), to = min_u64(end, base + PAGE_SIZE);
    if (from >= to) return;
    if (to - from < PAGE_SIZE) {
        memset(page->bytes + (from - base), 0, to - from);
        return;
    }
    *link = page->next;
    memory->page_count--;
    memory_free(page);
}

/* Zeroes [start, end) in every page there is. */
static void clear_by_sweep(struct file_memory *memory, uint64_t start, uint64_t end) {
    for (size_t i = 0; i < (size_t) 1 << memory->bucket_bits; i++)
        for (struct page **link = &memory->buckets[i]; *link;) {
            const struct page *page = *link;
            clear_page(memory, link, start, end);
            if (*link == page) link = &(*link)->next;
        }
}

/* Zeroes [start, end), whichever way looks at fewer pages. */
static void clear(struct file_memory *memory, uint64_t start, uint64_t end) {
    end = min_u64(end, memory->length);
    if (start >= end) return;
    const uint64_t first = start >> PAGE_BITS, last = (end - 1) >> PAGE_BITS;
    if (last - first > memory->page_count) {
        clear_by_sweep(memory, start, end);
        return;
    }
    for (uint64_t index = first; index <= last; index++) {
        struct page **link = link_of(memory, index);
        if (*link) clear_page(memory, link, start, end);
    }
}

/* Zeroes the range, then makes the file at least `least` and at most `most` bytes long. */
static int clear_and_resize(struct file *file, uint64_t start, uint64_t end, uint64_t least, uint64_t most) {
    struct file_memory *memory = (struct file_memory *) file;
    pthread_rwlock_wrlock(&memory->lock);
    clear(memory, start, end);
    memory->length = min_u64(max_u64(memory->length, least), most);
    pthread_rwlock_unlock(&memory->lock);
    return 0;
}

static int memory_zero(struct file *file, uint64_t offset, uint64_t length, unsigned mode) {
    (void) mode;
    return clear_and_resize(file, offset, offset + length, offset + length, UINT64_MAX);
}

static int memory_discard(struct file *file, uint64_t offset, uint64_t length) {
    return clear_and_resize(file, offset, offset + length, 0, UINT64_MAX);
}

static int memory_allocate(struct file *file, uint64_t offset, uint64_t length) {
    return clear_and_resize(file, 0, 0, offset + length, UINT64_MAX);
}

static int memory_truncate(struct file *file, uint64_t length) { return clear_and_resize(file, length, UINT64_MAX, length, length); }

static int memory_sync(struct file *file) {
    (void) file;
    return 0;
}

static int memory_length(struct file *file, uint64_t *length) {
    struct file_memory *memory = (struct file_memory *) file;
    pthread_rwlock_rdlock(&memory->lock);
    *length = memory->length;
    pthread_rwlock_unlock(&memory->lock);
    return 0;
}

static void memory_destroy(struct file *file) {
    struct file_memory *memory = (struct file_memory *) file;
    clear_by_sweep(memory, 0, UINT64_MAX);
    memory_free(memory->buckets);
    pthread_rwlock_destroy(&memory->lock);
    memory_free(memory);
}

static const struct file_ops memory_ops = {
    .kind = "memory",
    .readv = memory_readv,
    .writev = memory_writev,
    .zero = memory_zero,
    .discard = memory_discard,
    .allocate = memory_allocate,
    .truncate = memory_truncate,
    .sync = memory_sync,
    .length = memory_length,
    .destroy = memory_destroy,
};

int file_memory_new(const char *name, struct file **file) {
    struct file_memory *memory = memory_zeroed(sizeof *memory);
    struct page **buckets = memory_array((size_t) 1 << BUCKET_BITS_FIRST, sizeof *buckets);
    if (!memory || !buckets || file_init(&memory->file, &memory_ops, name) < 0) {
        memory_free(buckets);
        memory_free(memory);
        return -ENOMEM;
    }
    pthread_rwlock_init(&memory->lock, NULL);
    memory->buckets = buckets;
    memory->bucket_bits = BUCKET_BITS_FIRST;
    memory->file.zero_after_discard = true;
    *file = &memory->file;
    return 0;
}
