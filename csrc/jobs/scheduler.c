/* SPDX-License-Identifier: MIT
 *
 * Queues and turns. Everything happens in submit and reap, by the clock of the ring below, so the same code schedules real disks and
 * simulated ones. Invariants: only the queue that has the turn sends; whenever something waits and nothing is under way, retry_at
 * says when to look again, so nothing waits for ever.
 */
#include "jobs/scheduler.h"

#include "base/bytes.h"
#include "base/memory.h"

#define MILLISECOND UINT64_C(1000000)
#define SLICE_MAX (10000 * MILLISECOND)   /* products of two still have 64 bits */
#define MEAN_WEIGHT 8u                    /* means take in an eighth of each new value */
#define NEAR_DISTANCE (UINT64_C(1) << 20) /* a stream whose next operation is further away on average gains nothing from a wait */

struct turn_queue {
    struct ring_job *first, *last; /* waiting, in order of arrival */
    unsigned waiting, under_way;
    bool is_sync, has_come;         /* has_come: anything yet */
    uint64_t ended_at;              /* of the last operation that left the queue empty; 0 = there is none, or the next has come */
    uint64_t think_time;            /* mean time from there to the next arrival */
    uint64_t next_offset, distance; /* where the last arrival ends, and the mean distance from there to the next one's start */
};

struct scheduler {
    struct ring ring;
    struct ring *below;
    struct scheduler_options options;
    unsigned count; /* queues: one a stream, and the asynchronous one, which is the last */
    unsigned turn;  /* whose turn it is */
    bool begun;     /* the turn's slice has begun */
    uint64_t slice_end, idle_until;
    uint64_t retry_at; /* when to look again though nothing has ended */
    uint64_t position; /* where the last operation sent ends */
    unsigned sync_under_way;
    uint64_t mark; /* of the write-depth rule */
    bool marked;
    struct turn_queue queues[];
};

struct scheduler_options scheduler_options_default(void) {
    return (struct scheduler_options){.kind = SCHEDULER_FAIR,
                                      .low_latency = true,
                                      .write_depth = WRITE_DEPTH_DELAYED_SYNC,
                                      .slice_sync = 100 * MILLISECOND,
                                      .slice_async = 40 * MILLISECOND,
                                      .slice_idle = 8 * MILLISECOND,
                                      .expire_sync = 125 * MILLISECOND,
                                      .expire_async = 250 * MILLISECOND,
                                      .target_latency = 300 * MILLISECOND,
                                      .quantum = 8};
}

static struct scheduler *scheduler_of(struct ring *ring) { return (struct scheduler *) ring; }

static struct turn_queue *queue_of(struct scheduler *scheduler, const struct ring_job *job) {
    return &scheduler->queues[job->is_sync ? job->stream : scheduler->count - 1];
}

/* ---- which operation of a queue ---- */

/* The oldest when it has expired, else the next one upwards from `position`, else the lowest. Returns the link to it. */
static struct ring_job **choose(struct scheduler *scheduler, struct turn_queue *queue, uint64_t now) {
    const uint64_t expire = queue->is_sync ? scheduler->options.expire_sync : scheduler->options.expire_async;
    struct ring_job **above = NULL, **lowest = &queue->first;
    if (now - queue->first->submitted_at > expire) return &queue->first;
    for (struct ring_job **link = &queue->first; *link != NULL; link = &(*link)->next) {
        const uint64_t offset = (*link)->move.offset;
        if (offset < (*lowest)->move.offset) lowest = link;
        if (offset >= scheduler->position && (above == NULL || offset < (*above)->move.offset)) above = link;
    }
    return above != NULL ? above : lowest;
}

static void take_out(struct turn_queue *queue, struct ring_job **link) {
    struct ring_job *job = *link;
    *link = job->next;
    queue->waiting--;
    if (queue->last != job) return;
    queue->last = queue->first;
    while (queue->last != NULL && queue->last->next != NULL) queue->last = queue->last->next;
}

static void send(struct scheduler *scheduler, struct turn_queue *queue, uint64_t now) {
    struct ring_job **link = choose(scheduler, queue, now), *job = *link;
    take_out(queue, link);
    queue->under_way++;
    scheduler->sync_under_way += queue->is_sync;
    if (job->move.length > 0) scheduler->position = job->move.offset + job->move.length;
    ring_submit(scheduler->below, job);
}

/* ---- whose turn it is ---- */

static void retry(struct scheduler *scheduler, uint64_t at) { scheduler->retry_at = min_u64(scheduler->retry_at, at); }

/* How many asynchronous operations may be under way. */
static uint64_t write_depth(const struct scheduler *scheduler, uint64_t now) {
    if (scheduler->options.write_depth == WRITE_DEPTH_OFF || !scheduler->marked) return scheduler->options.quantum;
    const uint64_t depth = (now - scheduler->mark) / scheduler->options.slice_sync;
    return min_u64(max_u64(depth, 1), scheduler->options.quantum);
}

/* Whether the queue whose turn it is may send one more now. */
static bool may_send(struct scheduler *scheduler, const struct turn_queue *queue, uint64_t now) {
    if (queue->is_sync) return queue->under_way < scheduler->options.quantum;
    if (scheduler->sync_under_way > 0) return false;
    const uint64_t depth = write_depth(scheduler, now);
    if (queue->under_way < depth) return true;
    if (depth < scheduler->options.quantum) retry(scheduler, scheduler->mark + (queue->under_way + 1) * scheduler->options.slice_sync);
    return false;
}

/* Queues that have something to do. */
static unsigned count_busy(const struct scheduler *scheduler) {
    unsigned busy = 0;
    for (unsigned i = 0; i < scheduler->count; i++) busy += scheduler->queues[i].waiting + scheduler->queues[i].under_way > 0;
    return busy;
}

/* A slice's length; with low_latency all together take about target_latency, but none is shorter than two waits. */
static uint64_t slice_length(const struct scheduler *scheduler, const struct turn_queue *queue) {
    const struct scheduler_options *options = &scheduler->options;
    const uint64_t slice = queue->is_sync ? options->slice_sync : options->slice_async;
    const uint64_t round = count_busy(scheduler) * options->slice_sync;
    if (!options->low_latency || round <= options->target_latency) return slice;
    const uint64_t least = min_u64(slice, 2 * options->slice_idle * slice / options->slice_sync);
    return max_u64(max_u64(slice * options->target_latency / round, least), MILLISECOND);
}

/* Whether it pays to wait for the stream's next operation: it comes soon, and lies near. */
static bool is_worth_waiting(const struct scheduler *scheduler, const struct turn_queue *queue) {
    return queue->is_sync && queue->distance <= NEAR_DISTANCE && queue->think_time <= scheduler->options.slice_idle;
}

/* Whether the turn goes on: there is something to send, or it is worth waiting for. */
static bool keeps_turn(struct scheduler *scheduler, const struct turn_queue *queue, uint64_t now) {
    if (scheduler->begun && now >= scheduler->slice_end) return false;
    if (queue->waiting > 0) return true;
    if (!scheduler->begun || !is_worth_waiting(scheduler, queue)) return false;
    if (queue->under_way > 0) return true;
    if (now >= scheduler->idle_until) return false;
    retry(scheduler, scheduler->idle_until);
    return true;
}

/* Gives the turn to the next queue that has something waiting. False: none has. */
static bool pass_turn(struct scheduler *scheduler) {
    for (unsigned i = 1; i <= scheduler->count; i++) {
        const unsigned next = (scheduler->turn + i) % scheduler->count;
        if (scheduler->queues[next].waiting == 0) continue;
        scheduler->turn = next;
        scheduler->begun = false;
        scheduler->idle_until = 0;
        return true;
    }
    return false;
}

static void begin_slice(struct scheduler *scheduler, const struct turn_queue *queue, uint64_t now) {
    if (scheduler->begun) return;
    scheduler->begun = true;
    scheduler->slice_end = now + slice_length(scheduler, queue);
}

/* Sends what may go now. */
static void dispatch(struct scheduler *scheduler) {
    scheduler->retry_at = RING_FOREVER;
    for (;;) {
        const uint64_t now = ring_now(&scheduler->ring);
        if (!keeps_turn(scheduler, &scheduler->queues[scheduler->turn], now) && !pass_turn(scheduler)) return;
        struct turn_queue *queue = &scheduler->queues[scheduler->turn];
        if (queue->waiting == 0) return;
        if (!may_send(scheduler, queue, now)) { /* a slice begins with its first operation, however long that had to wait */
            if (scheduler->begun) retry(scheduler, scheduler->slice_end);
            return;
        }
        begin_slice(scheduler, queue, now);
        send(scheduler, queue, now);
    }
}

/* ---- what comes and goes ---- */

static uint64_t mean_with(uint64_t mean, uint64_t value) { return mean - mean / MEAN_WEIGHT + value / MEAN_WEIGHT; }

static void note_arrival(struct turn_queue *queue, const struct move *move, uint64_t now) {
    const uint64_t there = queue->next_offset, here = move->length > 0 ? move->offset : there;
    if (queue->has_come) queue->distance = mean_with(queue->distance, there < here ? here - there : there - here);
    queue->has_come = true;
    queue->next_offset = here + move->length;
    if (queue->ended_at == 0) return;
    queue->think_time = mean_with(queue->think_time, now - queue->ended_at);
    queue->ended_at = 0;
}

static void fair_submit(struct ring *ring, struct ring_job *job) {
    struct scheduler *scheduler = scheduler_of(ring);
    struct turn_queue *queue = queue_of(scheduler, job);
    job->submitted_at = ring_now(ring);
    job->next = NULL;
    note_arrival(queue, &job->move, job->submitted_at);
    if (queue->first == NULL) queue->first = job;
    else queue->last->next = job;
    queue->last = job;
    queue->waiting++;
    dispatch(scheduler);
}

static void note_end(struct scheduler *scheduler, const struct ring_job *job) {
    struct turn_queue *queue = queue_of(scheduler, job);
    const uint64_t now = ring_now(&scheduler->ring);
    queue->under_way--;
    if (!queue->is_sync) return;
    scheduler->sync_under_way--;
    const bool delayed = now - job->submitted_at > scheduler->options.expire_sync;
    if (delayed || scheduler->options.write_depth == WRITE_DEPTH_ANY_SYNC) {
        scheduler->mark = now;
        scheduler->marked = true;
    }
    if (queue->waiting + queue->under_way > 0) return;
    queue->ended_at = now;
    const bool has_turn = queue == &scheduler->queues[scheduler->turn];
    if (has_turn && is_worth_waiting(scheduler, queue)) scheduler->idle_until = now + scheduler->options.slice_idle;
}

/* NULL also when it is time to look again: whoever reaps does so in a loop, and a wake is never lost in one of ours. */
static struct ring_job *fair_reap(struct ring *ring, uint64_t until) {
    struct scheduler *scheduler = scheduler_of(ring);
    dispatch(scheduler);
    struct ring_job *job = ring_reap(scheduler->below, min_u64(until, scheduler->retry_at));
    if (job != NULL) note_end(scheduler, job);
    return job;
}

/* ---- none ---- */

static void none_submit(struct ring *ring, struct ring_job *job) {
    job->submitted_at = ring_now(ring);
    ring_submit(scheduler_of(ring)->below, job);
}

static struct ring_job *none_reap(struct ring *ring, uint64_t until) { return ring_reap(scheduler_of(ring)->below, until); }

/* ---- the ring ---- */

static void scheduler_wake(struct ring *ring) { ring_wake(scheduler_of(ring)->below); }

static uint64_t scheduler_now(struct ring *ring) { return ring_now(scheduler_of(ring)->below); }

static void scheduler_pass(struct ring *ring, uint64_t nanoseconds) { ring_pass(scheduler_of(ring)->below, nanoseconds); }

static void scheduler_close(struct ring *ring) { memory_free(ring); }

static const struct ring_ops fair_ops = {.name = "fair",
                                         .submit = fair_submit,
                                         .reap = fair_reap,
                                         .wake = scheduler_wake,
                                         .now = scheduler_now,
                                         .pass = scheduler_pass,
                                         .close = scheduler_close};

static const struct ring_ops none_ops = {.name = "none",
                                         .submit = none_submit,
                                         .reap = none_reap,
                                         .wake = scheduler_wake,
                                         .now = scheduler_now,
                                         .pass = scheduler_pass,
                                         .close = scheduler_close};

static bool is_slice(uint64_t time) { return time >= MILLISECOND && time <= SLICE_MAX; }

int scheduler_open(const struct scheduler_options *options, struct ring *below, unsigned streams, struct ring **ring, struct error *error) {
    const bool has_slices = is_slice(options->slice_sync) && is_slice(options->slice_async) && is_slice(options->target_latency);
    if (options->quantum == 0 || !has_slices || options->slice_idle > SLICE_MAX)
        return error_set(error, -EINVAL, "a scheduler needs a quantum, and slices and a target_latency of 1 ms to 10 s");
    struct scheduler *scheduler = memory_zeroed(sizeof *scheduler + (streams + 1) * sizeof scheduler->queues[0]);
    if (scheduler == NULL) return error_set(error, -ENOMEM, "no memory for a scheduler of %u streams", streams);
    scheduler->ring.ops = options->kind == SCHEDULER_FAIR ? &fair_ops : &none_ops;
    scheduler->below = below;
    scheduler->options = *options;
    scheduler->count = streams + 1;
    for (unsigned i = 0; i < streams; i++) scheduler->queues[i].is_sync = true;
    *ring = &scheduler->ring;
    return 0;
}
