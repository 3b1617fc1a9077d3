/* SPDX-License-Identifier: MIT
 *
 * Issuing, judging and counting. A slot's number says what it does: its block, or NO_BLOCK for a flush. Invariants: at most iodepth
 * requests are under way; with verify a block's top bit is set exactly while a request for it is. The first error
 * stops the job. Called by the loop in one thread; only stop and progress are touched by others.
 */
#include "jobs/job.h"

#include <string.h>

#include "base/bytes.h"
#include "base/memory.h"
#include "jobs/contents.h"

#define NO_BLOCK UINT64_MAX
#define UNDER_WAY UINT32_C(0x80000000)
#define GENERATION UINT32_C(0x7fffffff)
#define OPERATION_COST UINT64_C(1000) /* nanoseconds of virtual time for an operation that the disk had no part in */

/* ---- life ---- */

static uint64_t buffer_stride(const struct job_options *options) { return round_up_u64(options->pattern.bs, MEMORY_ALIGNMENT); }

static void fill_buffers(struct job *job, uint64_t seed) {
    const struct job_options *options = &job->options;
    const uint64_t length = options->iodepth * buffer_stride(options);
    if (options->buffers == JOB_BUFFERS_FILLED) {
        memset(job->buffers, options->fill, length);
        return;
    }
    for (uint64_t at = 0; at < length; at += 8) {
        const uint64_t word = pattern_random(&seed);
        memcpy(job->buffers + at, &word, sizeof word);
    }
}

int job_init(struct job *job, const struct job_options *options, struct image *image, struct ring *ring, unsigned stream,
             struct error *error) {
    memset(job, 0, sizeof *job);
    job->options = *options;
    job_result_init(&job->result);
    pattern_start(&job->pattern, &options->pattern);
    const int result = queue_init(&job->queue, image, ring, options->iodepth);
    job->queue.stream = stream;
    job->buffers = memory_aligned(options->iodepth * buffer_stride(options));
    if (options->verify) job->generations = memory_array(job->pattern.blocks, sizeof *job->generations);
    if (options->verify && job->generations == NULL) {
        job_destroy(job);
        return error_set(error, -ENOMEM, "no memory to verify %llu blocks", (unsigned long long) job->pattern.blocks);
    }
    if (result < 0 || job->buffers == NULL) {
        job_destroy(job);
        return error_set(error, -ENOMEM, "no memory for a job of iodepth %u and bs %llu", options->iodepth,
                         (unsigned long long) options->pattern.bs);
    }
    fill_buffers(job, options->pattern.seed ^ stream);
    return 0;
}

void job_destroy(struct job *job) {
    queue_destroy(&job->queue);
    memory_free(job->buffers);
    memory_free(job->generations);
    job_result_clear(&job->result);
}

void job_stop(struct job *job) {
    atomic_store(&job->stop, true);
    ring_wake(job->queue.ring);
}

uint64_t job_progress(const struct job *job) { return atomic_load_explicit(&job->progress, memory_order_relaxed); }

/* ---- issuing ---- */

static uint8_t *buffer_of(const struct job *job, const struct queue_slot *slot) {
    return job->buffers + (uint64_t) (slot - job->queue.slots) * buffer_stride(&job->options);
}

/* When the runtime is over. */
static uint64_t ends_at(const struct job *job) {
    const struct job_options *options = &job->options;
    return options->runtime > 0 ? job->started_at + options->ramp_time + options->runtime : RING_FOREVER;
}

static bool is_cut_short(const struct job *job) {
    return atomic_load_explicit(&job->stop, memory_order_relaxed) || job->result.error.code < 0;
}

static bool pattern_is_over(const struct job *job, uint64_t now) {
    const struct job_options *options = &job->options;
    if (is_cut_short(job)) return true;
    if (now >= ends_at(job)) return true;
    const uint64_t most = options->operations > 0 ? options->operations : options->runtime > 0 ? UINT64_MAX : job->pattern.blocks;
    return job->issued >= most;
}

/* When the rate allows the next operation. */
static uint64_t due_at(const struct job *job) {
    if (job->options.rate == 0) return 0;
    const double seconds = (double) job->issued * (double) job->options.pattern.bs / (double) job->options.rate;
    return job->started_at + (uint64_t) (seconds * 1e9);
}

/* Taken when it starts: a write of zeroes may become another kind on its way. */
static unsigned direction_of(enum request_kind kind) {
    switch (kind) {
        case REQUEST_READ: return JOB_READ;
        case REQUEST_WRITE: return JOB_WRITE;
        case REQUEST_FLUSH: return JOB_SYNC;
        default: return JOB_TRIM;
    }
}

static void start(struct job *job, struct queue_slot *slot, enum request_kind kind, uint64_t offset, uint64_t length, uint64_t block) {
    request_start(&slot->request, job->queue.image, kind, offset, length, length > 0 ? buffer_of(job, slot) : NULL);
    slot->request.may_unmap = true;
    slot->number = block;
    slot->direction = direction_of(kind);
    queue_start(slot);
    if (!slot->busy && !slot->has_moved) ring_pass(job->queue.ring, OPERATION_COST); /* else such jobs would never come to their end */
}

/* Starts the flush that is due. False: it is, but there is no slot. */
static bool issue_sync(struct job *job) {
    if (job->options.fsync == 0 || job->writes_since_sync < job->options.fsync) return true;
    struct queue_slot *slot = queue_slot_take(&job->queue);
    if (slot == NULL) return false;
    job->writes_since_sync = 0;
    start(job, slot, REQUEST_FLUSH, 0, 0, NO_BLOCK);
    return true;
}

/* Whether the block may be under way now; marks it so. */
static bool claim_block(struct job *job, uint64_t block) {
    if (job->generations == NULL) return true;
    if ((job->generations[block] & UNDER_WAY) != 0) return false;
    job->generations[block] |= UNDER_WAY;
    return true;
}

/* Whether discarding a block of the job makes it read as zeroes: parts of clusters stay as they are, as does everything in version 2. */
static bool discards_to_zero(const struct job *job) {
    const struct image *image = job->queue.image;
    const struct pattern_options *pattern = &job->options.pattern;
    if (image->format != IMAGE_QCOW2 || image->geometry.version < 3 || image->discard_ignored) return false;
    return ((pattern->offset | pattern->stride | pattern->bs) & (image->geometry.cluster_size - 1)) == 0;
}

/* What a verified block holds must be known. */
static enum request_kind kind_of(const struct job *job, enum pattern_verb verb) {
    switch (verb) {
        case PATTERN_READ: return REQUEST_READ;
        case PATTERN_WRITE: return REQUEST_WRITE;
        case PATTERN_TRIM: break;
    }
    return job->generations == NULL || discards_to_zero(job) ? REQUEST_DISCARD : REQUEST_ZERO;
}

/* What the block is going to hold. */
static void prepare_block(struct job *job, const struct queue_slot *slot, const struct pattern_operation *operation) {
    uint32_t *generation = &job->generations[operation->block];
    if (operation->verb == PATTERN_TRIM) *generation = UNDER_WAY | CONTENTS_ZEROES;
    if (operation->verb != PATTERN_WRITE) return;
    const uint32_t next = (uint32_t) max_u64(CONTENTS_WRITTEN, (*generation + 1) & GENERATION);
    *generation = UNDER_WAY | next;
    contents_fill(buffer_of(job, slot), job->options.pattern.bs, operation->offset, next);
}

/* One more operation; false when none can start now. */
static bool issue_next(struct job *job) {
    if (!issue_sync(job)) return false;
    if (!job->holds) job->held = pattern_next(&job->pattern);
    job->holds = true;
    if (job->queue.free == NULL || !claim_block(job, job->held.block)) return false;
    struct queue_slot *slot = queue_slot_take(&job->queue);
    job->holds = false;
    job->issued++;
    job->writes_since_sync += job->held.verb == PATTERN_WRITE;
    if (job->generations != NULL) prepare_block(job, slot, &job->held);
    start(job, slot, kind_of(job, job->held.verb), job->held.offset, job->options.pattern.bs, job->held.block);
    return true;
}

/* ---- the end ---- */

static bool is_idle(const struct job *job) { return job->queue.busy == 0 && job->queue.done == NULL; }

/* Reads back blocks in order. */
static void issue_verify(struct job *job) {
    if (atomic_load_explicit(&job->stop, memory_order_relaxed)) job->next_verify = job->pattern.blocks;
    while (job->next_verify < job->pattern.blocks && job->queue.free != NULL && job->result.error.code == 0) {
        const uint64_t block = job->next_verify++;
        start(job, queue_slot_take(&job->queue), REQUEST_READ, pattern_offset(&job->pattern, block), job->options.pattern.bs, block);
    }
    job->over = is_idle(job);
}

static void end_pattern(struct job *job, uint64_t now) {
    if (!is_idle(job)) return;
    job->result.elapsed = now - min_u64(now, job->measured_at);
    job->verifying = job->options.verify && job->result.error.code == 0;
    job->over = !job->verifying;
}

uint64_t job_fill(struct job *job) {
    const uint64_t now = ring_now(job->queue.ring);
    if (!job->begun) {
        job->begun = true;
        job->started_at = now;
        job->measured_at = now + job->options.ramp_time;
    }
    while (!job->verifying && !pattern_is_over(job, now)) {
        const uint64_t due = due_at(job);
        if (due > now) return min_u64(due, ends_at(job));
        if (!issue_next(job)) return RING_FOREVER;
    }
    if (!job->verifying && !is_cut_short(job) && !issue_sync(job)) return RING_FOREVER;
    if (!job->verifying) end_pattern(job, now);
    if (job->verifying) issue_verify(job);
    return RING_FOREVER;
}

/* ---- collecting ---- */

static void measure(struct job *job, const struct queue_slot *slot, uint64_t now) {
    const uint64_t interval = job->options.interval;
    if (now < job->measured_at || job->verifying) return;
    job_result_count(&job->result, slot->direction, slot->request.length, now - slot->started_at,
                     interval > 0 ? (now - job->measured_at) / interval : UINT64_MAX);
}

static void judge(struct job *job, const struct queue_slot *slot) {
    if (job->generations == NULL || slot->number == NO_BLOCK) return;
    const uint32_t generation = job->generations[slot->number] & GENERATION;
    const uint64_t bs = job->options.pattern.bs, offset = slot->request.guest_offset;
    job->generations[slot->number] = generation;
    if (slot->request.kind != REQUEST_READ) return;
    if (contents_are(slot->request.bytes, bs, offset, generation)) job->result.verified += generation != CONTENTS_UNKNOWN;
    else
        error_set(&job->result.error, -EILSEQ, "verify: the %llu bytes at offset %llu are not those of write %u", (unsigned long long) bs,
                  (unsigned long long) offset, generation);
}

void job_collect(struct job *job) {
    struct queue_slot *slot;
    while ((slot = queue_take_done(&job->queue)) != NULL) {
        if (slot->request.error.code < 0) {
            job->result.directions[slot->direction].errors++;
            error_set(&job->result.error, slot->request.error.code, "%s", slot->request.error.text);
        } else {
            measure(job, slot, ring_now(job->queue.ring));
            judge(job, slot);
        }
        job->completed += slot->number != NO_BLOCK;
        queue_slot_give(slot);
    }
    atomic_store_explicit(&job->progress, job->completed, memory_order_relaxed);
}
