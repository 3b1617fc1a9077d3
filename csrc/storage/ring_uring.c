/* SPDX-License-Identifier: MIT
 *
 * A ring on io_uring: reads, writes and syncs of real files go to the kernel by the batch, everything else is done in ring_submit.
 *
 * A job is in `waiting` until a batch is full or ring_reap has nothing better to do, then has a slot, until `ended` tells the owner,
 * who puts it in `reaped` (so that one lock fetches many). What the kernel does by half, or not at all because it was interrupted,
 * file_posix_rest ends. An O_DIRECT write is a guest of its file's gate from just before the kernel has it until it ends. Another
 * thread, or this one within some other call, that needs the file alone collects our completions for us. So the completion queue and
 * `ended` are under the lock, and a collector holds it while it waits for the kernel, which it does only while `guests` > 0. Invariant:
 * when this thread asks for the lock or waits at a gate, the kernel has all guests. So something is bound to complete, and nobody waits
 * for ever. The bell, an eventfd that the kernel polls for us, ends a wait in which the owner would miss a wake or what a collector
 * took.
 */
#define _GNU_SOURCE 1
#include "storage/ring.h"
#include "storage/ring_forms.h"

#ifdef HAVE_LIBURING
#include <liburing.h>
#endif
#ifndef IORING_POLL_ADD_MULTI /* no liburing, or one from before 2.1 */

int ring_uring_open(unsigned depth, bool eager, struct ring **ring, struct error *error) {
    (void) depth, (void) eager, (void) ring;
    return error_set(error, -ENOTSUP, "io_uring is not available: built without liburing 2.1");
}

#else

#include <assert.h>
#include <poll.h>
#include <sched.h>
#include <stddef.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "base/bytes.h"
#include "base/memory.h"
#include "storage/file_posix.h"
#include "storage/gate.h"
#include "storage/vector.h"

#define NANOSECONDS UINT64_C(1000000000) /* in a second */
#define BATCH_SHARE 8u                   /* as many wait for each other as an eighth of what the kernel has: a device must not run dry */
#define ENTRIES_MIN 8u                   /* twice as many completions fit, so there is room for the bell's */
#define PIECE_MAX (UINT64_C(1) << 30)    /* of one contiguous read or write: its length has 32 bits */

struct slot {                /* a job that the kernel has */
    struct gate_guest guest; /* first: the gate gives it back */
    struct uring *uring;
    struct slot *next;
    struct gate *gate;            /* where it is a guest, or NULL */
    uint64_t length;              /* of a read or write */
    struct ring_job *_Atomic job; /* set last: a collector gets the slot from the kernel, and nothing else orders the two threads */
};

struct uring {
    struct ring ring;
    struct io_uring io; /* submission: the owner's; completion: under the lock */
    int bell;
    bool eager;
    unsigned waiting_count, with_kernel; /* the owner's: jobs that are not prepared yet; jobs that are, until they are fetched */
    struct ring_jobs waiting, reaped;    /* the owner's */
    struct slot *free;                   /* the owner's */
    pthread_mutex_t lock;
    pthread_cond_t let_go;           /* no collector holds us any more */
    struct slot *ended, **ended_end; /* under the lock */
    _Atomic unsigned collectors;     /* grows under a gate's lock, shrinks under ours */
    _Atomic unsigned guests;
    _Atomic bool woken;
    struct slot slots[];
};

static struct uring *uring_of(struct ring *ring) { return (struct uring *) ring; }

static struct ring_job *job_of(struct slot *slot) { return atomic_load_explicit(&slot->job, memory_order_acquire); }

static enum file_operation operation_of(const struct move *move) {
    return move->kind == MOVE_SYNC ? FILE_SYNC : move->kind == MOVE_WRITE ? FILE_WRITE : FILE_READ;
}

/* ---- to the kernel; the owner's thread ---- */

/* Gives the kernel all that is prepared, and waits for `least` completions. */
static void call_kernel(struct uring *uring, unsigned least) {
    while (io_uring_submit_and_wait(&uring->io, least) < 0 || io_uring_sq_ready(&uring->io) > 0) sched_yield();
}

/* Makes the slot a guest. While it has to wait for that, nothing that is prepared waits with it. */
static void enter_gate(struct uring *uring, struct slot *slot) {
    if (!gate_admit(slot->gate, &slot->guest, false)) {
        call_kernel(uring, 0);
        gate_admit(slot->gate, &slot->guest, true);
    }
    atomic_fetch_add(&uring->guests, 1);
}

static void prepare_transfer(struct io_uring_sqe *entry, int fd, const struct move *move) {
    const unsigned count = (unsigned) move->vector_count, length = (unsigned) min_u64(move->vector[0].iov_len, PIECE_MAX);
    if (move->kind == MOVE_READ && count == 1) io_uring_prep_read(entry, fd, move->vector[0].iov_base, length, move->offset);
    else if (move->kind == MOVE_READ) io_uring_prep_readv(entry, fd, move->vector, count, move->offset);
    else if (count == 1) io_uring_prep_write(entry, fd, move->vector[0].iov_base, length, move->offset);
    else io_uring_prep_writev(entry, fd, move->vector, count, move->offset);
}

static struct slot *new_slot(struct uring *uring, const struct move *move) {
    struct slot *slot = uring->free;
    assert(slot);
    uring->free = slot->next;
    slot->length = 0;
    if (move->kind != MOVE_SYNC) vector_total(move->vector, move->vector_count, &slot->length);
    slot->gate = move->kind == MOVE_WRITE ? file_posix_gate(move->file) : NULL;
    return slot;
}

static void prepare(struct uring *uring, struct ring_job *job) {
    uring->with_kernel++;
    const struct move *move = &job->move;
    const int fd = file_posix_descriptor(move->file);
    struct slot *slot = new_slot(uring, move);
    file_count(move->file, operation_of(move), slot->length);
    if (slot->gate) enter_gate(uring, slot);
    struct io_uring_sqe *entry = io_uring_get_sqe(&uring->io);
    assert(entry); /* there are as many as slots */
    if (move->kind == MOVE_SYNC) io_uring_prep_fsync(entry, fd, IORING_FSYNC_DATASYNC);
    else prepare_transfer(entry, fd, move);
    io_uring_sqe_set_data(entry, slot);
    atomic_store_explicit(&slot->job, job, memory_order_release);
}

/* Starts what waits, and waits for `least` completions. */
static void start(struct uring *uring, unsigned least) {
    for (struct ring_job *job; (job = ring_jobs_take(&uring->waiting)) != NULL;) prepare(uring, job);
    uring->waiting_count = 0;
    call_kernel(uring, least);
}

static void ring_bell(struct uring *uring) {
    while (write(uring->bell, &(uint64_t){1}, sizeof(uint64_t)) < 0 && errno == EINTR) {
    }
}

/* ---- from the kernel; with the lock held, in any thread ---- */

/* What a job comes to whose system call returned `moved`. */
static int result_of(const struct slot *slot, const struct move *move, int moved) {
    const bool again = moved == -EAGAIN || moved == -EINTR;
    if (move->kind == MOVE_SYNC) return again ? move->file->ops->sync(move->file) : file_posix_synced(move->file, moved);
    if (moved < 0 && !again) return moved;
    const uint64_t done = moved < 0 ? 0 : (uint64_t) moved;
    if (done == slot->length) return 0;
    return file_posix_rest(move->file, move->kind == MOVE_WRITE, move->offset, move->vector, move->vector_count, done);
}

static void end_slot(struct uring *uring, struct slot *slot, int moved) {
    struct ring_job *job = job_of(slot);
    const struct move *move = &job->move;
    file_explain(move->file, operation_of(move), move->offset, slot->length, result_of(slot, move, moved), &job->error);
    if (slot->gate) {
        atomic_fetch_sub(&uring->guests, 1);
        gate_dismiss(slot->gate, &slot->guest);
    }
    slot->next = NULL;
    *uring->ended_end = slot;
    uring->ended_end = &slot->next;
}

/* Empties the completion queue. */
static void end_completed(struct uring *uring) {
    struct io_uring_cqe *entry;
    while (io_uring_peek_cqe(&uring->io, &entry) == 0) {
        struct slot *slot = io_uring_cqe_get_data(entry);
        const int moved = entry->res;
        io_uring_cqe_seen(&uring->io, entry);
        if (slot) end_slot(uring, slot, moved);
    }
}

/* ---- the gate's side ---- */

static struct slot *slot_of(struct gate_guest *guest) { return (struct slot *) guest; }

static void hold(struct gate_guest *guest) { atomic_fetch_add(&slot_of(guest)->uring->collectors, 1); }

static void collect(struct gate_guest *guest) {
    struct uring *uring = slot_of(guest)->uring;
    struct io_uring_cqe *entry;
    pthread_mutex_lock(&uring->lock);
    const bool expected = atomic_load(&uring->guests) > 0;
    if (expected && io_uring_wait_cqe(&uring->io, &entry) == 0) {
        end_completed(uring);
        ring_bell(uring); /* the owner may be waiting for what we have taken */
    }
    if (atomic_fetch_sub(&uring->collectors, 1) == 1) pthread_cond_signal(&uring->let_go);
    pthread_mutex_unlock(&uring->lock);
    if (!expected) sched_yield(); /* a guest that has just entered and is not counted yet, or has left */
}

/* ---- the ring's functions ---- */

/* Whether the kernel takes the move as it is. */
static bool is_for_kernel(const struct move *move) {
    uint64_t length;
    if (move->kind == MOVE_SYNC) return file_posix_descriptor(move->file) >= 0 && !move->file->no_sync;
    return ring_is_plain(move, &length) && file_posix_takes(move->file, move->offset, move->vector, move->vector_count);
}

static void uring_submit(struct ring *ring, struct ring_job *job) {
    struct uring *uring = uring_of(ring);
    error_clear(&job->error);
    if (uring->eager && ring_at_once(&job->move)) {
        ring_jobs_add(&uring->reaped, job);
    } else if (is_for_kernel(&job->move)) {
        ring_jobs_add(&uring->waiting, job);
        if (++uring->waiting_count > uring->with_kernel / BATCH_SHARE) start(uring, 0);
    } else {
        start(uring, 0); /* what follows may take long */
        move_carry_out(&job->move, &job->error);
        ring_jobs_add(&uring->reaped, job);
    }
}

/* Moves what has ended to `reaped`. */
static void fetch_ended(struct uring *uring) {
    pthread_mutex_lock(&uring->lock);
    end_completed(uring);
    struct slot *slot = uring->ended;
    uring->ended = NULL;
    uring->ended_end = &uring->ended;
    pthread_mutex_unlock(&uring->lock);
    while (slot) {
        struct slot *next = slot->next;
        ring_jobs_add(&uring->reaped, job_of(slot));
        uring->with_kernel--;
        slot->next = uring->free;
        uring->free = slot;
        slot = next;
    }
}

static struct ring_job *take_ended(struct uring *uring) {
    if (!uring->reaped.first) fetch_ended(uring);
    return ring_jobs_take(&uring->reaped);
}

/* Starts what waits, and waits for something to complete, or for the bell. False when the time is up. */
static bool wait_until(struct uring *uring, uint64_t until) {
    if (until == RING_FOREVER) {
        start(uring, 1);
        return true;
    }
    start(uring, 0);
    const uint64_t now = ring_clock(&uring->ring);
    if (now >= until) return false;
    const struct timespec time = {.tv_sec = (time_t) ((until - now) / NANOSECONDS), .tv_nsec = (long) ((until - now) % NANOSECONDS)};
    ppoll(&(struct pollfd){.fd = uring->io.ring_fd, .events = POLLIN}, 1, &time, NULL);
    return true;
}

static struct ring_job *uring_reap(struct ring *ring, uint64_t until) {
    struct uring *uring = uring_of(ring);
    struct ring_job *job = take_ended(uring);
    while (!job && until > 0 && !atomic_load(&uring->woken) && wait_until(uring, until)) job = take_ended(uring);
    if (job) return job;
    start(uring, 0);
    job = take_ended(uring);
    if (!job && until > 0) atomic_exchange(&uring->woken, false);
    return job;
}

static void uring_wake(struct ring *ring) {
    struct uring *uring = uring_of(ring);
    if (!atomic_exchange(&uring->woken, true)) ring_bell(uring);
}

/* ---- opening and closing ---- */

static void uring_close(struct ring *ring) {
    struct uring *uring = uring_of(ring);
    pthread_mutex_lock(&uring->lock);
    while (atomic_load(&uring->collectors) > 0) pthread_cond_wait(&uring->let_go, &uring->lock);
    pthread_mutex_unlock(&uring->lock);
    io_uring_queue_exit(&uring->io);
    close(uring->bell);
    pthread_mutex_destroy(&uring->lock);
    pthread_cond_destroy(&uring->let_go);
    memory_free(uring);
}

static const struct ring_ops uring_ops = {
    .name = "io_uring",
    .submit = uring_submit,
    .reap = uring_reap,
    .wake = uring_wake,
    .now = ring_clock,
    .close = uring_close,
};

/* Ends need not interrupt the thread that submits, since it looks for them anyway; kernels before 5.19 do not know that. */
static int init_queue(struct uring *uring, unsigned entries) {
    int result = -EINVAL;
#ifdef IORING_SETUP_COOP_TASKRUN
    result = io_uring_queue_init(entries, &uring->io, IORING_SETUP_COOP_TASKRUN);
#endif
    return result == -EINVAL ? io_uring_queue_init(entries, &uring->io, 0) : result;
}

/* Sets the kernel's side up. -ENOTSUP where io_uring is missing, forbidden, or too old to poll again and again (5.13). */
static int set_up(struct uring *uring, unsigned depth) {
    int result = init_queue(uring, (unsigned) max_u64(depth, ENTRIES_MIN));
    if (result == -ENOSYS || result == -EPERM || result == -EACCES) return -ENOTSUP;
    if (result < 0) return result;
    uring->bell = eventfd(0, EFD_CLOEXEC);
    if (uring->bell < 0) result = -errno;
    if (result == 0 && !(uring->io.features & IORING_FEAT_RSRC_TAGS)) result = -ENOTSUP;
    if (result == 0) {
        struct io_uring_sqe *entry = io_uring_get_sqe(&uring->io);
        io_uring_prep_poll_add(entry, uring->bell, POLLIN);
        entry->len = IORING_POLL_ADD_MULTI;
        io_uring_sqe_set_data(entry, NULL);
        result = io_uring_submit(&uring->io);
    }
    if (result >= 0) return 0;
    io_uring_queue_exit(&uring->io);
    if (uring->bell >= 0) close(uring->bell);
    return result;
}

static void init(struct uring *uring, unsigned depth, bool eager) {
    uring->ring.ops = &uring_ops;
    uring->eager = eager;
    uring->ended_end = &uring->ended;
    pthread_mutex_init(&uring->lock, NULL);
    pthread_cond_init(&uring->let_go, NULL);
    for (unsigned i = 0; i < depth; i++) {
        struct slot *slot = &uring->slots[i];
        slot->guest = (struct gate_guest){.hold = hold, .collect = collect};
        slot->uring = uring;
        slot->next = uring->free;
        uring->free = slot;
    }
}

int ring_uring_open(unsigned depth, bool eager, struct ring **ring, struct error *error) {
    struct uring *uring = memory_zeroed(sizeof *uring + depth * sizeof uring->slots[0]);
    const int result = uring ? set_up(uring, depth) : -ENOMEM;
    if (result < 0) {
        memory_free(uring);
        return error_set(error, result, "io_uring is not available: %s", strerror(-result));
    }
    init(uring, depth, eager);
    *ring = &uring->ring;
    return 0;
}

#endif
