/* SPDX-License-Identifier: MIT
 *
 * Faults by rule, and crashes by a log of what was not synced.
 *
 * Invariant: base (a memory file: what is durable) + whole log, applied in order = the file below. To keep it, each change
 * holds the mutex from the operation below until its entry is in the log; room for the entry is made first, so that a
 * change never happens unlogged. Sync applies the log to base and empties it; applying twice is harmless, so a sync
 * that fails half way keeps the whole log.
 * A crash picks pieces of each entry: 512-byte sectors, or larger ones where a huge range is zeroed or discarded.
 * Without `crashes` only the rule's counters are under the mutex. Called by specs; never decides by time or address.
 */
#include "storage/file_fault.h"

#include <assert.h>
#include <pthread.h>

#include "base/bytes.h"
#include "base/memory.h"
#include "storage/file_memory.h"
#include "storage/vector.h"

#define SECTOR_SIZE UINT64_C(512)
#define PIECES_MAX 4096u /* of one zeroed or discarded range */
#define COPY_SIZE (UINT64_C(1) << 20)

_Static_assert(COPY_SIZE <= MEMORY_ZEROES_SIZE, "what is copied is compared with memory_zeroes");

enum change_kind {
    CHANGE_WRITE,    /* bytes at a range */
    CHANGE_ZERO,     /* zeroes at a range; grows */
    CHANGE_DISCARD,  /* zeroes at a range; does not grow */
    CHANGE_ALLOCATE, /* grows to the range's end */
    CHANGE_TRUNCATE, /* `offset` is the length */
};

struct change {
    enum change_kind kind;
    uint64_t offset, length;
    uint8_t *bytes; /* CHANGE_WRITE: owned once it is in the log */
};

struct file_fault {
    struct file file;
    struct file *below;
    struct file *base; /* what is durable; NULL without crashes */
    pthread_mutex_t lock;
    struct file_fault_rule rule; /* kinds 0: none */
    uint64_t seen, failed;
    struct change *log;
    size_t log_count, log_capacity;
};

struct choice { /* which pieces survive; percent 100 keeps all */
    uint64_t state;
    unsigned percent;
};

static bool keep(struct choice *choice) {
    uint64_t mixed = choice->state += UINT64_C(0x9e3779b97f4a7c15);
    mixed = (mixed ^ mixed >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
    mixed = (mixed ^ mixed >> 27) * UINT64_C(0x94d049bb133111eb);
    return (mixed ^ mixed >> 31) % 100 < choice->percent;
}

static struct file_fault *fault_of(struct file *file) { return (struct file_fault *) file; }

/* ---- the rule ---- */

/* Counts one operation. Returns 0, or the code that it has to fail with. */
static int strike(struct file_fault *fault, unsigned kind, bool *partial) {
    int code = 0;
    pthread_mutex_lock(&fault->lock);
    const struct file_fault_rule *rule = &fault->rule;
    if (rule->kinds & kind) {
        fault->seen++;
        if (fault->seen >= rule->nth && (rule->times == 0 || fault->seen - rule->nth < rule->times)) {
            fault->failed++;
            code = rule->code;
            if (partial) *partial = rule->partial;
        }
    }
    pthread_mutex_unlock(&fault->lock);
    return code;
}

/* ---- changes ---- */

/* Carries [start, end) of a change out on a file. */
static int apply_part(struct file *file, const struct change *change, uint64_t start, uint64_t end, struct error *error) {
    uint64_t length;
    switch (change->kind) {
        case CHANGE_WRITE: return file_write(file, start, change->bytes + (start - change->offset), end - start, error);
        case CHANGE_ZERO: return file_zero(file, start, end - start, FILE_ZERO_UNMAP, error);
        case CHANGE_DISCARD: {
            const int result = file_length(file, &length, error);
            end = min_u64(end, length);
            return result < 0 || start >= end ? result : file_zero(file, start, end - start, FILE_ZERO_UNMAP, error);
        }
        case CHANGE_ALLOCATE: {
            const int result = file_length(file, &length, error);
            return result < 0 || length >= end ? result : file_truncate(file, end, error);
        }
        case CHANGE_TRUNCATE: return file_truncate(file, change->offset, error);
    }
    return 0;
}

/* What of a change is kept or lost as a whole; 0 = all of it. */
static uint64_t piece_size(const struct change *change) {
    if (change->kind == CHANGE_ALLOCATE || change->kind == CHANGE_TRUNCATE) return 0;
    uint64_t size = SECTOR_SIZE;
    if (change->kind != CHANGE_WRITE)
        while (change->length / size > PIECES_MAX) size *= 2;
    return size;
}

/* Carries the pieces out that the choice keeps; neighbours at once. */
static int apply(struct file *file, const struct change *change, struct choice *choice, struct error *error) {
    const uint64_t size = piece_size(change), end = change->offset + change->length;
    if (size == 0) return keep(choice) ? apply_part(file, change, change->offset, end, error) : 0;
    int result = 0;
    uint64_t kept = change->offset; /* [kept, at) is to be carried out */
    for (uint64_t at = change->offset, next; at < end && result == 0; at = next) {
        next = min_u64(end, round_down_u64(at, size) + size);
        if (keep(choice)) continue;
        if (kept < at) result = apply_part(file, change, kept, at, error);
        kept = next;
    }
    return result < 0 || kept >= end ? result : apply_part(file, change, kept, end, error);
}

/* Carries a change out on the file below, as it was asked for. */
static int change_below(struct file_fault *fault, const struct change *change, unsigned mode) {
    struct error error = {0}; /* our own wrapper writes the sentence */
    switch (change->kind) {
        case CHANGE_WRITE: return file_write(fault->below, change->offset, change->bytes, change->length, &error);
        case CHANGE_ZERO: return file_zero(fault->below, change->offset, change->length, mode, &error);
        case CHANGE_DISCARD: return file_discard(fault->below, change->offset, change->length, &error);
        case CHANGE_ALLOCATE: return file_allocate(fault->below, change->offset, change->length, &error);
        case CHANGE_TRUNCATE: return file_truncate(fault->below, change->offset, &error);
    }
    return 0;
}

/* ---- the log ---- */

static int make_room(struct file_fault *fault) {
    if (fault->log_count < fault->log_capacity) return 0;
    const size_t capacity = fault->log_capacity ? fault->log_capacity * 2 : 16;
    struct change *log = memory_resize(fault->log, capacity * sizeof *log);
    if (!log) return -ENOMEM;
    fault->log = log;
    fault->log_capacity = capacity;
    return 0;
}

static void empty_log(struct file_fault *fault) {
    for (size_t i = 0; i < fault->log_count; i++) memory_free(fault->log[i].bytes);
    fault->log_count = 0;
}

/* A write that failed below may have done something: makes `change` what is there now. False when that cannot be known. */
static bool salvage(struct file_fault *fault, struct change *change) {
    struct error error = {0};
    uint64_t length;
    if (change->kind != CHANGE_WRITE || file_length(fault->below, &length, &error) < 0 || length <= change->offset) return false;
    change->length = min_u64(change->length, length - change->offset);
    return file_read(fault->below, change->offset, change->bytes, change->length, &error) == 0;
}

/* Carries a change out below and logs it. Takes the change's bytes. */
static int carry_out(struct file_fault *fault, struct change change, unsigned mode) {
    bool logged = false;
    int result;
    if (fault->base) {
        pthread_mutex_lock(&fault->lock);
        result = make_room(fault);
        if (result == 0) {
            result = change_below(fault, &change, mode);
            logged = result == 0 || salvage(fault, &change);
        }
        if (logged) fault->log[fault->log_count++] = change;
        pthread_mutex_unlock(&fault->lock);
    } else {
        result = change_below(fault, &change, mode);
    }
    if (!logged) memory_free(change.bytes);
    return result;
}

/* Makes `to` a copy of `from`. */
static int copy_file(struct file *from, struct file *to, struct error *error) {
    uint64_t length = 0;
    uint8_t *bytes = memory_aligned(COPY_SIZE);
    int result = bytes ? file_length(from, &length, error) : error_set(error, -ENOMEM, "no memory to copy '%s'", from->name);
    if (result == 0) result = file_truncate(to, 0, error);
    if (result == 0) result = file_truncate(to, length, error);
    for (uint64_t at = 0, step; at < length && result == 0; at += step) {
        step = min_u64(COPY_SIZE, length - at);
        result = file_read(from, at, bytes, step, error);
        if (result == 0 && memcmp(bytes, memory_zeroes(), step) != 0) result = file_write(to, at, bytes, step, error);
    }
    memory_free(bytes);
    return result;
}

static int apply_log(const struct file_fault *fault, struct file *file, struct choice *choice, struct error *error) {
    int result = 0;
    for (size_t i = 0; i < fault->log_count && result == 0; i++) result = apply(file, &fault->log[i], choice, error);
    return result;
}

/* ---- operations ---- */

static int fault_readv(struct file *file, uint64_t offset, const struct iovec *vector, int count) {
    struct file_fault *fault = fault_of(file);
    struct error error = {0};
    const int code = strike(fault, FILE_FAULT_READ, NULL);
    return code < 0 ? code : file_readv(fault->below, offset, vector, count, &error);
}

/* Writes the vector's first `length` bytes from a copy, which becomes the log's. */
static int write_copy(struct file_fault *fault, uint64_t offset, const struct iovec *vector, int count, uint64_t length) {
    if (length == 0) return 0;
    struct vector_cursor cursor = vector_start(vector, count);
    uint8_t *bytes = memory_aligned(length);
    if (!bytes) return -ENOMEM;
    vector_gather(&cursor, bytes, length);
    return carry_out(fault, (struct change){CHANGE_WRITE, offset, length, bytes}, 0);
}

static int fault_writev(struct file *file, uint64_t offset, const struct iovec *vector, int count) {
    struct file_fault *fault = fault_of(file);
    struct error error = {0};
    bool partial = false;
    uint64_t length;
    if (!vector_total(vector, count, &length)) return -EINVAL;
    const int code = strike(fault, FILE_FAULT_WRITE, &partial);
    if (partial) write_copy(fault, offset, vector, count, length / 2);
    if (code < 0) return code;
    if (fault->base) return write_copy(fault, offset, vector, count, length);
    return file_writev(fault->below, offset, vector, count, &error);
}

static int fault_zero(struct file *file, uint64_t offset, uint64_t length, unsigned mode) {
    const int code = strike(fault_of(file), FILE_FAULT_ZERO, NULL);
    return code < 0 ? code : carry_out(fault_of(file), (struct change){CHANGE_ZERO, offset, length, NULL}, mode);
}

static int fault_discard(struct file *file, uint64_t offset, uint64_t length) {
    const int code = strike(fault_of(file), FILE_FAULT_DISCARD, NULL);
    return code < 0 ? code : carry_out(fault_of(file), (struct change){CHANGE_DISCARD, offset, length, NULL}, 0);
}

static int fault_allocate(struct file *file, uint64_t offset, uint64_t length) {
    const int code = strike(fault_of(file), FILE_FAULT_ALLOCATE, NULL);
    return code < 0 ? code : carry_out(fault_of(file), (struct change){CHANGE_ALLOCATE, offset, length, NULL}, 0);
}

static int fault_truncate(struct file *file, uint64_t length) {
    const int code = strike(fault_of(file), FILE_FAULT_TRUNCATE, NULL);
    return code < 0 ? code : carry_out(fault_of(file), (struct change){CHANGE_TRUNCATE, length, 0, NULL}, 0);
}

static int fault_sync(struct file *file) {
    struct file_fault *fault = fault_of(file);
    struct choice all = {0, 100};
    struct error error = {0};
    int result = strike(fault, FILE_FAULT_SYNC, NULL);
    if (result < 0) return result;
    if (!fault->base) return file_sync(fault->below, &error);
    pthread_mutex_lock(&fault->lock);
    result = file_sync(fault->below, &error);
    if (result == 0) result = apply_log(fault, fault->base, &all, &error);
    if (result == 0) empty_log(fault);
    pthread_mutex_unlock(&fault->lock);
    return result;
}

static int fault_length(struct file *file, uint64_t *length) {
    struct error error = {0};
    return file_length(fault_of(file)->below, length, &error);
}

static int fault_lock(struct file *file, enum file_use from, enum file_use to, struct error *error) {
    return file_change_use(fault_of(file)->below, from, to, error);
}

static void fault_destroy(struct file *file) {
    struct file_fault *fault = fault_of(file);
    empty_log(fault);
    memory_free(fault->log);
    file_release(fault->base);
    file_release(fault->below);
    pthread_mutex_destroy(&fault->lock);
    memory_free(fault);
}

static const struct file_ops fault_ops = {
    .kind = "fault",
    .readv = fault_readv,
    .writev = fault_writev,
    .zero = fault_zero,
    .discard = fault_discard,
    .allocate = fault_allocate,
    .truncate = fault_truncate,
    .sync = fault_sync,
    .length = fault_length,
    .lock = fault_lock,
    .destroy = fault_destroy,
};

/* ---- the specs' side ---- */

int file_fault_new(struct file *below, bool crashes, struct file **file) {
    struct error error = {0};
    struct file_fault *fault = memory_zeroed(sizeof *fault);
    if (!fault || file_init(&fault->file, &fault_ops, below->name) < 0) {
        memory_free(fault);
        return -ENOMEM;
    }
    pthread_mutex_init(&fault->lock, NULL);
    fault->below = file_share(below);
    fault->file.alignment = below->alignment;
    fault->file.read_only = below->read_only;
    fault->file.grows_as_zeroes = below->grows_as_zeroes;
    fault->file.zero_after_discard = below->zero_after_discard;
    int result = crashes ? file_memory_new(below->name, &fault->base) : 0;
    if (result == 0 && crashes) result = copy_file(below, fault->base, &error);
    if (result < 0) file_release(&fault->file);
    else *file = &fault->file;
    return result;
}

void file_fault_set(struct file *file, const struct file_fault_rule *rule) {
    struct file_fault *fault = fault_of(file);
    assert(file->ops == &fault_ops);
    pthread_mutex_lock(&fault->lock);
    fault->rule = rule ? *rule : (struct file_fault_rule){0};
    fault->seen = fault->failed = 0;
    pthread_mutex_unlock(&fault->lock);
}

void file_fault_counts(struct file *file, uint64_t *seen, uint64_t *failed) {
    struct file_fault *fault = fault_of(file);
    pthread_mutex_lock(&fault->lock);
    *seen = fault->seen;
    *failed = fault->failed;
    pthread_mutex_unlock(&fault->lock);
}

int file_fault_crash(struct file *file, struct file *target, uint64_t seed, unsigned keep_percent, struct error *error) {
    struct file_fault *fault = fault_of(file);
    struct choice choice = {seed, keep_percent};
    if (!fault->base) return error_set(error, -EINVAL, "'%s' keeps no log, so it cannot crash", file->name);
    pthread_mutex_lock(&fault->lock);
    int result = copy_file(fault->base, target, error);
    if (result == 0) result = apply_log(fault, target, &choice, error);
    pthread_mutex_unlock(&fault->lock);
    return result;
}
