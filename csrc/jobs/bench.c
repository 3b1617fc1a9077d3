/* SPDX-License-Identifier: MIT
 *
 * Workers. A worker is a thread that runs the loop on one job, or on all of them where they share a ring, and notes its own CPU use
 * when they are over. Invariant: between start and the end of the wait only `stop`, `progress` and `over_count` are touched
 * by two threads. Called by the binding.
 */
#define _GNU_SOURCE 1
#include "jobs/bench.h"

#include <string.h>
#include <sys/resource.h>

#include "base/bytes.h"
#include "base/memory.h"
#include "base/timed.h"
#include "storage/file_model.h"

struct worker {
    struct bench *bench;
    struct ring *ring;
    struct job **jobs;
    unsigned count;
    pthread_t thread;
    bool started;
    struct bench_cpu cpu;
};

struct bench {
    unsigned job_count, jobs_made, worker_count;
    struct job *jobs;
    struct job **job_pointers;
    struct worker *workers;
    struct ring *below; /* what a scheduler is over */
    bool virtual_time;
    pthread_mutex_t lock; /* of over_count */
    pthread_cond_t changed;
    unsigned over_count; /* workers that are over */
};

/* ---- making ---- */

static unsigned ring_depth(const struct bench_job *jobs, unsigned count) {
    uint64_t depth = 0;
    for (unsigned i = 0; i < count; i++) depth += (uint64_t) jobs[i].options.iodepth * MOVES_MAX;
    return (unsigned) min_u64(depth, UINT32_MAX);
}

/* All jobs on one simulated disk, or none on any. */
static int check_time(struct bench *bench, const struct bench_job *jobs, struct error *error) {
    struct file *file = jobs[0].image->file;
    bench->virtual_time = file_is_model(file);
    for (unsigned i = 1; i < bench->job_count; i++) {
        const struct file *other = jobs[i].image->file;
        if (bench->virtual_time ? other == file : !file_is_model(other)) continue;
        return error_set(error, -EINVAL, "'%s' and '%s' do not lie on one simulated disk: jobs in virtual time share one clock", file->name,
                         other->name);
    }
    return 0;
}

static int open_ring(struct bench *bench, const struct bench_job *jobs, unsigned count, enum ring_kind aio, struct ring **ring,
                     struct error *error) {
    const unsigned depth = ring_depth(jobs, count), most = bench->virtual_time ? RING_VIRTUAL_DEPTH_MAX : RING_DEPTH_MAX;
    if (depth > most) {
        return error_set(error, -EINVAL, "%u jobs that share a ring have %u requests under way (iodepth); at most %u are allowed", count,
                         depth / MOVES_MAX, most / MOVES_MAX);
    }
    return ring_open_on(jobs[0].image->file, aio, depth, ring, error);
}

static int open_rings(struct bench *bench, const struct bench_job *jobs, enum ring_kind aio, const struct scheduler_options *scheduler,
                      struct error *error) {
    const unsigned each = bench->job_count / bench->worker_count;
    for (unsigned i = 0; i < bench->worker_count; i++) {
        struct worker *worker = &bench->workers[i];
        struct ring **ring = scheduler != NULL ? &bench->below : &worker->ring;
        *worker = (struct worker){.bench = bench, .jobs = bench->job_pointers + i * each, .count = each};
        int result = open_ring(bench, jobs + i * each, each, aio, ring, error);
        if (result == 0 && scheduler != NULL) result = scheduler_open(scheduler, bench->below, bench->job_count, &worker->ring, error);
        if (result < 0) return result;
    }
    return 0;
}

static int make_jobs(struct bench *bench, const struct bench_job *jobs, struct error *error) {
    const unsigned each = bench->job_count / bench->worker_count;
    for (unsigned i = 0; i < bench->job_count; i++) {
        const int result = job_init(&bench->jobs[i], &jobs[i].options, jobs[i].image, bench->workers[i / each].ring, i, error);
        if (result < 0) return result;
        bench->job_pointers[i] = &bench->jobs[i];
        bench->jobs_made++;
    }
    return 0;
}

static struct bench *new_bench(unsigned job_count) {
    struct bench *bench = memory_zeroed(sizeof *bench);
    if (bench == NULL) return NULL;
    bench->job_count = job_count;
    bench->jobs = memory_array(job_count, sizeof *bench->jobs);
    bench->job_pointers = memory_array(job_count, sizeof *bench->job_pointers);
    bench->workers = memory_array(job_count, sizeof *bench->workers);
    pthread_mutex_init(&bench->lock, NULL);
    timed_init(&bench->changed);
    if (bench->jobs != NULL && bench->job_pointers != NULL && bench->workers != NULL) return bench;
    bench_free(bench);
    return NULL;
}

int bench_new(const struct bench_job *jobs, unsigned count, enum ring_kind aio, const struct scheduler_options *scheduler,
              struct bench **made, struct error *error) {
    struct bench *bench = new_bench(count);
    *made = NULL;
    if (bench == NULL) return error_set(error, -ENOMEM, "no memory for %u jobs", count);
    int result = check_time(bench, jobs, error);
    bench->worker_count = bench->virtual_time || scheduler != NULL ? 1 : count;
    if (result == 0) result = open_rings(bench, jobs, aio, scheduler, error);
    if (result == 0) result = make_jobs(bench, jobs, error);
    if (result < 0) bench_free(bench);
    else *made = bench;
    return result;
}

/* ---- working ---- */

static uint64_t nanoseconds_of(struct timeval time) { return (uint64_t) time.tv_sec * 1000000000u + (uint64_t) time.tv_usec * 1000u; }

static struct bench_cpu cpu_now(void) {
    struct rusage usage;
    getrusage(RUSAGE_THREAD, &usage);
    return (struct bench_cpu){.user = nanoseconds_of(usage.ru_utime),
                              .system = nanoseconds_of(usage.ru_stime),
                              .voluntary_switches = (uint64_t) usage.ru_nvcsw,
                              .involuntary_switches = (uint64_t) usage.ru_nivcsw};
}

static void worker_over(struct worker *worker) {
    struct bench *bench = worker->bench;
    pthread_mutex_lock(&bench->lock);
    bench->over_count++;
    pthread_cond_signal(&bench->changed);
    pthread_mutex_unlock(&bench->lock);
}

static void *work(void *argument) {
    struct worker *worker = argument;
    const struct bench_cpu before = cpu_now();
    loop_run(worker->ring, worker->jobs, worker->count);
    const struct bench_cpu after = cpu_now();
    worker->cpu = (struct bench_cpu){.user = after.user - before.user,
                                     .system = after.system - before.system,
                                     .voluntary_switches = after.voluntary_switches - before.voluntary_switches,
                                     .involuntary_switches = after.involuntary_switches - before.involuntary_switches};
    worker_over(worker);
    return NULL;
}

int bench_start(struct bench *bench, struct error *error) {
    for (unsigned i = 0; i < bench->worker_count; i++) {
        const int result = pthread_create(&bench->workers[i].thread, NULL, work, &bench->workers[i]);
        bench->workers[i].started = result == 0;
        if (result == 0) continue;
        bench_stop(bench);
        for (unsigned left = i; left < bench->worker_count; left++) worker_over(&bench->workers[left]);
        return error_set(error, -result, "no thread for job %u: %s", i, strerror(result));
    }
    return 0;
}

void bench_stop(struct bench *bench) {
    for (unsigned i = 0; i < bench->jobs_made; i++) job_stop(&bench->jobs[i]);
}

uint64_t bench_progress(const struct bench *bench) {
    uint64_t operations = 0;
    for (unsigned i = 0; i < bench->jobs_made; i++) operations += job_progress(&bench->jobs[i]);
    return operations;
}

/* ---- waiting ---- */

static bool wait_over(struct bench *bench, uint64_t nanoseconds) {
    struct timespec until;
    clock_gettime(CLOCK_MONOTONIC, &until);
    const uint64_t at = (uint64_t) until.tv_nsec + min_u64(nanoseconds, UINT64_MAX / 4);
    until.tv_sec += (time_t) (at / 1000000000u);
    until.tv_nsec = (long) (at % 1000000000u);
    int result = 0;
    pthread_mutex_lock(&bench->lock);
    while (bench->over_count < bench->worker_count && result == 0) {
        if (nanoseconds == RING_FOREVER) result = pthread_cond_wait(&bench->changed, &bench->lock);
        else result = pthread_cond_timedwait(&bench->changed, &bench->lock, &until);
    }
    const bool over = bench->over_count >= bench->worker_count;
    pthread_mutex_unlock(&bench->lock);
    return over;
}

bool bench_wait(struct bench *bench, uint64_t nanoseconds) {
    if (!wait_over(bench, nanoseconds)) return false;
    for (unsigned i = 0; i < bench->worker_count; i++) {
        if (bench->workers[i].started) pthread_join(bench->workers[i].thread, NULL);
        bench->workers[i].started = false;
    }
    return true;
}

/* ---- results ---- */

static void add_cpu(struct bench_cpu *sum, const struct bench_cpu *more) {
    sum->user += more->user;
    sum->system += more->system;
    sum->voluntary_switches += more->voluntary_switches;
    sum->involuntary_switches += more->involuntary_switches;
}

int bench_result(const struct bench *bench, unsigned first, unsigned count, struct job_result *sum, struct bench_cpu *cpu) {
    const unsigned each = bench->job_count / bench->worker_count;
    uint64_t started = UINT64_MAX, ended = 0;
    job_result_init(sum);
    *cpu = (struct bench_cpu){.user = 0};
    for (unsigned i = first; i < first + count; i++) {
        const struct job *job = &bench->jobs[i];
        if (job_result_add(sum, &job->result) < 0) return -ENOMEM;
        started = min_u64(started, job->measured_at);
        ended = max_u64(ended, job->measured_at + job->result.elapsed);
        if (i == first || i % each == 0) add_cpu(cpu, &bench->workers[i / each].cpu);
    }
    sum->elapsed = ended - started;
    return 0;
}

void bench_free(struct bench *bench) {
    if (bench == NULL) return;
    bench_stop(bench);
    if (bench->workers != NULL) {
        for (unsigned i = 0; i < bench->worker_count; i++) {
            if (bench->workers[i].started) pthread_join(bench->workers[i].thread, NULL);
        }
    }
    for (unsigned i = 0; i < bench->jobs_made; i++) job_destroy(&bench->jobs[i]);
    for (unsigned i = 0; bench->workers != NULL && i < bench->worker_count; i++) ring_close(bench->workers[i].ring);
    ring_close(bench->below);
    pthread_cond_destroy(&bench->changed);
    pthread_mutex_destroy(&bench->lock);
    memory_free(bench->workers);
    memory_free(bench->job_pointers);
    memory_free(bench->jobs);
    memory_free(bench);
}
