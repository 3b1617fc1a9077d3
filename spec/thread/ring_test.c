/* SPDX-License-Identifier: MIT
 *
 * Every form of ring against a memory file: random moves many at a time, wakes, errors, and several rings on one O_DIRECT file whose sectors they share.
 *
 * Moves under way never overlap by a byte, but often share a sector, so what one loses of another's shows. The files lie in argv[1], else
 * $TMPDIR, else /tmp. Where there is no O_DIRECT or no io_uring, the checks that need it say so and are passed over. A ring that
 * hangs is ended by an alarm.
 */
#define _GNU_SOURCE 1

#include <dirent.h>
#include <limits.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <pthread.h>
#include <signal.h>
#include <stddef.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "../unit/unit.h"
#include "base/bytes.h"
#include "base/memory.h"
#include "storage/file_fault.h"
#include "storage/file_memory.h"
#include "storage/file_posix.h"
#include "storage/ring.h"

#define LONGEST 20000u
#define ALARM_SECONDS 240u

static char path[PATH_MAX];
static bool have_direct, have_uring;

#define OK(call) CHECK((call) == 0)

static struct file *new_file(unsigned flags) {
    struct error error = {0};
    struct file *file = NULL;
    unlink(path);
    OK(file_posix_open(path, flags | FILE_POSIX_WRITE | FILE_POSIX_CREATE, &file, &error));
    return file;
}

static struct file *new_memory(void) {
    struct file *file = NULL;
    OK(file_memory_new("memory", &file));
    return file;
}

static struct ring *new_ring(enum ring_kind kind, unsigned depth) {
    struct error error = {0};
    struct ring *ring = NULL;
    OK(ring_open(kind, depth, &ring, &error));
    return ring;
}

static struct move move_of(enum move_kind kind, struct file *file, uint64_t offset, void *bytes, uint64_t length) {
    struct move move = {.kind = kind, .file = file, .offset = offset};
    if (bytes) move_append(&move, bytes, length);
    else move.length = length;
    return move;
}

/* Carries out one move and nothing else. */
static int run(struct ring *ring, struct ring_job *job, struct move move) {
    job->move = move;
    ring_submit(ring, job);
    CHECK(ring_reap(ring, RING_FOREVER) == job && ring_reap(ring, 0) == NULL);
    return job->error.code;
}

/* ---- random moves ---- */

struct task {
    struct ring_job job; /* first */
    uint8_t *bytes;      /* LONGEST and a page */
    uint64_t offset, length;
    bool is_free;
};

struct player {
    struct ring *ring;
    struct file *file, *model;
    uint64_t size, state;
    uint64_t reads, writes; /* submitted */
    unsigned depth, under_way;
    struct task *tasks;
    uint8_t *theirs;
};

static bool is_taken(const struct player *player, uint64_t offset, uint64_t length) {
    for (unsigned i = 0; i < player->depth; i++) {
        const struct task *task = &player->tasks[i];
        if (!task->is_free && offset < task->offset + task->length && task->offset < offset + length) return true;
    }
    return false;
}

static void random_range(struct player *player, struct task *task) {
    static const uint64_t units[] = {1, 1, 512, 4096, 4096};
    const uint64_t unit = units[unit_below(&player->state, 5)], longest = unit_below(&player->state, 4) ? 4096 : LONGEST;
    task->offset = round_down_u64(unit_below(&player->state, player->size - LONGEST), unit);
    task->length = min_u64(round_up_u64(1 + unit_below(&player->state, longest), unit), LONGEST / unit * unit);
}

/* Cuts the bytes in up to three, at multiples of 512 now and then. */
static void random_vector(struct player *player, struct task *task, uint8_t *bytes) {
    const uint64_t unit = unit_below(&player->state, 2) ? 512 : 1;
    uint64_t left = task->length;
    for (unsigned i = (unsigned) unit_below(&player->state, MOVE_VECTOR_MAX); i > 0 && left > unit; i--) {
        const uint64_t step = round_down_u64(unit_below(&player->state, left), unit);
        move_append(&task->job.move, bytes, step);
        bytes += step;
        left -= step;
    }
    move_append(&task->job.move, bytes, left);
}

static enum move_kind random_kind(struct player *player) {
    static const enum move_kind kinds[] = {MOVE_READ,  MOVE_READ,  MOVE_READ,    MOVE_READ,     MOVE_READ, MOVE_WRITE,
                                           MOVE_WRITE, MOVE_WRITE, MOVE_WRITE,   MOVE_WRITE,    MOVE_ZERO, MOVE_ZERO,
                                           MOVE_SYNC,  MOVE_WRITE, MOVE_DISCARD, MOVE_ALLOCATE, MOVE_WRITE};
    return kinds[unit_below(&player->state, sizeof kinds / sizeof kinds[0])];
}

static void submit(struct player *player, struct task *task) {
    uint8_t *bytes = task->bytes + (unit_below(&player->state, 4) == 0 ? 512 : 0) + (unit_below(&player->state, 8) == 0);
    const enum move_kind kind = random_kind(player);
    task->is_free = false;
    task->job.move = move_of(kind, player->file, task->offset, NULL, task->length);
    task->job.move.zero_mode = (unsigned) unit_below(&player->state, 2);
    memset(&task->job.error, 0x55, sizeof task->job.error);
    if (kind == MOVE_READ || kind == MOVE_WRITE) {
        task->job.move.length = 0;
        random_vector(player, task, bytes);
        for (uint64_t i = 0; i < task->length; i++) bytes[i] = (uint8_t) unit_random(&player->state);
    }
    player->reads += kind == MOVE_READ;
    player->writes += kind == MOVE_WRITE;
    player->under_way++;
    ring_submit(player->ring, &task->job);
}

/* Does to the model what has been done to the file; compares what was read. */
static void end(struct player *player, struct task *task) {
    struct error error = {0};
    struct move *move = &task->job.move;
    const int code = task->job.error.code;
    task->is_free = true;
    player->under_way--;
    if (code < 0) {
        CHECK(code == -ENOTSUP && (move->kind == MOVE_DISCARD || move->kind == MOVE_ALLOCATE));
        return;
    }
    if (move->kind == MOVE_READ) {
        OK(file_read(player->model, task->offset, player->theirs, task->length, &error));
        CHECK(memcmp(move->vector[0].iov_base, player->theirs, task->length) == 0);
    } else {
        move->file = player->model;
        OK(move_carry_out(move, &error));
    }
}

static void reap(struct player *player, bool wait) {
    struct ring_job *job = ring_reap(player->ring, wait ? RING_FOREVER : 0);
    CHECK(job != NULL || !wait);
    if (job) end(player, (struct task *) job);
}

/* Nothing is under way afterwards. All bytes and the length are compared; then the file may become shorter or longer. */
static void settle(struct player *player) {
    struct error error = {0};
    uint64_t mine = 0, theirs = 0;
    while (player->under_way > 0) reap(player, true);
    CHECK(ring_reap(player->ring, 0) == NULL);
    OK(file_length(player->file, &mine, &error));
    OK(file_length(player->model, &theirs, &error));
    CHECK(mine == theirs);
    for (uint64_t at = 0; at < player->size; at += LONGEST) {
        OK(file_read(player->file, at, player->tasks[0].bytes, LONGEST, &error));
        OK(file_read(player->model, at, player->theirs, LONGEST, &error));
        CHECK(memcmp(player->tasks[0].bytes, player->theirs, LONGEST) == 0);
    }
    const uint64_t length = unit_below(&player->state, player->size);
    OK(run(player->ring, &player->tasks[0].job, move_of(MOVE_TRUNCATE, player->file, length, NULL, 0)));
    OK(file_truncate(player->model, length, &error));
}

static void play(struct player *player, unsigned steps) {
    for (unsigned step = 0; step < steps; step++) {
        struct task *task = &player->tasks[unit_below(&player->state, player->depth)];
        if (unit_below(&player->state, 500) == 0) settle(player);
        if (task->is_free) random_range(player, task);
        if (task->is_free && !is_taken(player, task->offset, task->length)) submit(player, task);
        else reap(player, player->under_way > 0 && unit_below(&player->state, 2));
    }
    settle(player);
}

static void test_random(enum ring_kind kind, struct file *file, unsigned depth, unsigned steps) {
    const struct file_stats before = file_stats_of(file);
    struct player player = {new_ring(kind, depth), file, new_memory(), 400000, unit_seed + depth, 0, 0, depth, 0, NULL, NULL};
    player.tasks = memory_array(depth, sizeof *player.tasks);
    player.theirs = memory_aligned(LONGEST);
    for (unsigned i = 0; i < depth; i++) {
        player.tasks[i].bytes = memory_aligned(LONGEST + 4096);
        player.tasks[i].is_free = true;
    }
    struct error error = {0};
    OK(file_truncate(file, 0, &error));
    play(&player, steps);
    const struct file_stats stats = file_stats_of(file);
    CHECK(stats.writes - before.writes == player.writes && stats.reads - before.reads >= player.reads);
    for (unsigned i = 0; i < depth; i++) memory_free(player.tasks[i].bytes);
    memory_free(player.tasks);
    memory_free(player.theirs);
    file_release(player.model);
    ring_close(player.ring);
}

static void test_random_depths(enum ring_kind kind, struct file *file) {
    static const unsigned depths[] = {1, 2, 7, 32, 64};
    for (unsigned i = 0; i < 5; i++) test_random(kind, file, depths[i], 2500);
    file_release(file);
}

/* ---- wakes ---- */

struct waker {
    struct ring *ring;
    _Atomic unsigned asked, answered;
    unsigned rounds;
};

static void *wake_often(void *argument) {
    struct waker *waker = argument;
    for (unsigned i = 1; i <= waker->rounds; i++) {
        waker->asked = i;
        ring_wake(waker->ring);
        while (i % 3 != 0 && waker->answered < i) sched_yield();
    }
    return NULL;
}

/* Each wake is answered, whether jobs are under way or not, and a thread that waits for an answer gets it. */
static void test_wakes(enum ring_kind kind) {
    struct file *file = new_file(0);
    struct waker waker = {.ring = new_ring(kind, 4), .rounds = 3000};
    struct ring_job jobs[4];
    uint8_t bytes[4][512] = {{0}};
    unsigned under_way = 0, filled_at = UINT_MAX;
    pthread_t thread;
    CHECK(ring_reap(waker.ring, 0) == NULL);
    ring_wake(waker.ring);
    ring_wake(waker.ring);
    CHECK(ring_reap(waker.ring, 0) == NULL && ring_reap(waker.ring, RING_FOREVER) == NULL);
    const uint64_t soon = ring_now(waker.ring) + 3000000;
    CHECK(ring_reap(waker.ring, soon) == NULL && ring_now(waker.ring) >= soon);
    CHECK(ring_reap(waker.ring, soon) == NULL); /* long ago */
    ring_wake(waker.ring);
    const uint64_t late = ring_now(waker.ring) + UINT64_C(3600000000000);
    CHECK(ring_reap(waker.ring, late) == NULL && ring_now(waker.ring) < late);
    OK(pthread_create(&thread, NULL, wake_often, &waker));
    while (waker.answered < waker.rounds) {
        if (under_way == 0 && filled_at != waker.answered && waker.answered % 2 == 0)
            for (filled_at = waker.answered; under_way < 4; under_way++) {
                jobs[under_way].move = move_of(MOVE_WRITE, file, under_way * 512, bytes[under_way], 512);
                ring_submit(waker.ring, &jobs[under_way]);
            }
        const struct ring_job *job = ring_reap(waker.ring, RING_FOREVER);
        if (job) under_way--;
        else waker.answered = waker.asked;
        CHECK(!job || job->error.code == 0);
    }
    while (under_way > 0) under_way -= ring_reap(waker.ring, RING_FOREVER) != NULL;
    OK(pthread_join(thread, NULL));
    ring_wake(waker.ring);
    ring_close(waker.ring);
    file_release(file);
}

/* ---- errors ---- */

/* Through the ring and without it: the same code and sentence, and the same counters. */
static void fail_alike(struct ring *ring, struct move move, int code) {
    struct error error = {0};
    struct ring_job job = {.error = {-EIO, "what was there before"}};
    struct file_stats first = file_stats_of(move.file);
    CHECK(run(ring, &job, move) == code);
    const struct file_stats second = file_stats_of(move.file);
    CHECK(move_carry_out(&move, &error) == code && strcmp(error.text, job.error.text) == 0);
    const struct file_stats third = file_stats_of(move.file);
    CHECK(second.reads - first.reads == third.reads - second.reads && second.writes - first.writes == third.writes - second.writes);
    CHECK(second.syncs - first.syncs == third.syncs - second.syncs);
}

static void test_refusals(struct ring *ring) {
    struct error error = {0};
    struct file *file = NULL;
    uint8_t byte = 0;
    file_release(new_file(0));
    OK(file_posix_open(path, 0, &file, &error));
    fail_alike(ring, move_of(MOVE_WRITE, file, 0, &byte, 1), -EROFS);
    fail_alike(ring, move_of(MOVE_TRUNCATE, file, 0, NULL, 0), -EROFS);
    fail_alike(ring, move_of(MOVE_READ, file, INT64_MAX, &byte, 1), -EFBIG);
    fail_alike(ring, move_of((enum move_kind) 99, file, 0, NULL, 0), -EINVAL);
    fail_alike(ring, move_of(MOVE_READ, file, 0, &byte, 0), 0);
    fail_alike(ring, move_of(MOVE_READ, file, 7, &byte, 1), 0);
    fail_alike(ring, move_of(MOVE_SYNC, file, 0, NULL, 0), 0);
    file->no_sync = true;
    fail_alike(ring, move_of(MOVE_SYNC, file, 0, NULL, 0), 0);
    CHECK(file_stats_of(file).syncs == 2);
    file_release(file);
}

static void test_faults(struct ring *ring) {
    struct file *below = new_file(0), *file = NULL;
    uint8_t byte = 0;
    OK(file_fault_new(below, false, &file));
    file_fault_set(file, &(struct file_fault_rule){FILE_FAULT_ANY, 1, 0, -EBADF, false});
    fail_alike(ring, move_of(MOVE_READ, file, 3, &byte, 1), -EBADF);
    fail_alike(ring, move_of(MOVE_WRITE, file, 3, &byte, 1), -EBADF);
    fail_alike(ring, move_of(MOVE_ZERO, file, 3, NULL, 1), -EBADF);
    fail_alike(ring, move_of(MOVE_SYNC, file, 0, NULL, 0), -EBADF);
    file_release(file);
    file_release(below);
}

/* A file that must not grow past a limit: a write across it is short, is gone on with, and fails then. */
static void test_kernel_errors(struct ring *ring, unsigned flags) {
    struct rlimit before, limit;
    struct file *file = new_file(flags);
    uint8_t *bytes = memory_aligned(16384);
    memset(bytes, 7, 16384);
    OK(getrlimit(RLIMIT_FSIZE, &before));
    limit = before;
    limit.rlim_cur = 65536;
    OK(setrlimit(RLIMIT_FSIZE, &limit));
    struct ring_job job;
    OK(run(ring, &job, move_of(MOVE_WRITE, file, 65536 - 16384, bytes, 16384)));
    fail_alike(ring, move_of(MOVE_WRITE, file, 65536, bytes, 4096), -EFBIG);
    fail_alike(ring, move_of(MOVE_WRITE, file, 65536 - 8192, bytes, 16384), -EFBIG);
    OK(setrlimit(RLIMIT_FSIZE, &before));
    fail_alike(ring, move_of(MOVE_WRITE, file, 65536 - 8192, bytes, 16384), 0);
    memory_free(bytes);
    file_release(file);
}

static void test_errors(enum ring_kind kind) {
    struct ring *ring = new_ring(kind, 3);
    test_refusals(ring);
    test_faults(ring);
    test_kernel_errors(ring, 0);
    if (have_direct) test_kernel_errors(ring, FILE_POSIX_DIRECT);
    const uint64_t now = ring_now(ring);
    CHECK(now > 0 && ring_now(ring) >= now);
    ring_close(ring);
}

/* ---- several rings on one file ---- */

#define STRIPE 700u /* of one thread after the other: every sector has two owners */
#define BLOCK 4096u /* whole blocks have one */
#define STRIPES 120u
#define BLOCKS 40u
#define BLOCKS_START (21u * BLOCK)
#define NEIGHBOURS 3u
#define NEIGHBOUR_DEPTH 8u

_Static_assert((uint64_t) STRIPE *STRIPES <= BLOCKS_START, "blocks lie after the stripes");

struct neighbour {
    pthread_t thread;
    struct file *file;
    enum ring_kind kind;
    unsigned number;
    uint64_t state;
    uint8_t wanted[STRIPES + BLOCKS]; /* the byte that each of ours is full of */
};

static uint64_t offset_of(unsigned part) {
    return part < STRIPES ? (uint64_t) part * STRIPE : BLOCKS_START + (uint64_t) (part - STRIPES) * BLOCK;
}

static uint64_t length_of(unsigned part) { return part < STRIPES ? STRIPE : BLOCK; }

/* Writes one of our parts, which is not under way, without the ring; its thread has writes under way. */
static void write_directly(struct neighbour *neighbour, unsigned part, uint8_t *bytes) {
    struct error error = {0};
    uint64_t length = 0;
    OK(file_write(neighbour->file, offset_of(part), bytes, length_of(part), &error));
    OK(file_length(neighbour->file, &length, &error));
    CHECK(length >= offset_of(part) + length_of(part));
}

/* A part of ours that no job is under way for. */
static unsigned choose(struct neighbour *neighbour, const unsigned *parts) {
    for (;;) {
        const unsigned part = (unsigned) unit_below(&neighbour->state, (STRIPES + BLOCKS) / NEIGHBOURS) * NEIGHBOURS + neighbour->number;
        unsigned i = 0;
        while (i < NEIGHBOUR_DEPTH && parts[i] != part) i++;
        if (i == NEIGHBOUR_DEPTH) return part;
    }
}

static void *write_parts(void *argument) {
    struct neighbour *neighbour = argument;
    struct ring *ring = new_ring(neighbour->kind, NEIGHBOUR_DEPTH);
    struct ring_job jobs[NEIGHBOUR_DEPTH], *job;
    uint8_t *bytes = memory_aligned((NEIGHBOUR_DEPTH + 1) * BLOCK);
    unsigned parts[NEIGHBOUR_DEPTH], under_way = 0;
    for (unsigned i = 0; i < NEIGHBOUR_DEPTH; i++) parts[i] = UINT_MAX;
    for (unsigned step = 0; step < 1200 || under_way > 0; step++) {
        const unsigned slot = (unsigned) unit_below(&neighbour->state, NEIGHBOUR_DEPTH);
        if (step < 1200 && parts[slot] == UINT_MAX) {
            const unsigned part = choose(neighbour, parts), fill = 1 + (unsigned) unit_below(&neighbour->state, 255);
            const bool direct = unit_below(&neighbour->state, 4) == 0;
            uint8_t *own = bytes + (direct ? NEIGHBOUR_DEPTH : slot) * BLOCK;
            neighbour->wanted[part] = (uint8_t) fill;
            memset(own, (int) fill, BLOCK);
            if (direct) {
                write_directly(neighbour, part, own);
                continue;
            }
            parts[slot] = part;
            jobs[slot].move = move_of(MOVE_WRITE, neighbour->file, offset_of(part), own, length_of(part));
            ring_submit(ring, &jobs[slot]);
            under_way++;
        } else if ((job = ring_reap(ring, under_way > 0 ? RING_FOREVER : 0)) != NULL) {
            CHECK(job->error.code == 0);
            parts[job - jobs] = UINT_MAX;
            under_way--;
        }
    }
    memory_free(bytes);
    ring_close(ring);
    return NULL;
}

static void test_neighbours(const enum ring_kind *kinds, unsigned flags) {
    static struct neighbour neighbours[NEIGHBOURS];
    struct error error = {0};
    struct file *file = new_file(flags);
    uint8_t bytes[BLOCK];
    for (unsigned i = 0; i < NEIGHBOURS; i++) {
        neighbours[i] = (struct neighbour){.file = file, .kind = kinds[i], .number = i, .state = unit_seed * NEIGHBOURS + i};
        OK(pthread_create(&neighbours[i].thread, NULL, write_parts, &neighbours[i]));
    }
    for (unsigned i = 0; i < NEIGHBOURS; i++) OK(pthread_join(neighbours[i].thread, NULL));
    for (unsigned part = 0; part < STRIPES + BLOCKS; part++) {
        const uint8_t wanted = neighbours[part % NEIGHBOURS].wanted[part];
        OK(file_read(file, offset_of(part), bytes, length_of(part), &error));
        for (uint64_t i = 0; i < length_of(part); i++) CHECK(bytes[i] == wanted);
    }
    file_release(file);
}

static void test_all_neighbours(unsigned flags) {
    const enum ring_kind best = have_uring ? RING_URING : RING_THREADS;
    test_neighbours((enum ring_kind[]){best, best, best}, flags);
    test_neighbours((enum ring_kind[]){best, RING_THREADS, RING_SYNC}, flags);
    test_neighbours((enum ring_kind[]){RING_AUTO, RING_THREADS, RING_AUTO}, flags);
}

/* ---- opening ---- */

static void test_depths(void) {
    struct error error = {0};
    struct ring *ring = NULL;
    CHECK(ring_open(RING_AUTO, 0, &ring, &error) == -EINVAL && strstr(error.text, "not 0") && ring == NULL);
    error_clear(&error);
    CHECK(ring_open(RING_SYNC, RING_DEPTH_MAX + 1, &ring, &error) == -EINVAL);
    error_clear(&error);
    CHECK(ring_open((enum ring_kind) 9, 1, &ring, &error) == -EINVAL);
    ring_close(new_ring(RING_AUTO, RING_DEPTH_MAX));
    ring_close(NULL);
}

static void test_no_memory(enum ring_kind kind) {
    struct error error = {0};
    struct ring *ring = NULL;
    memory_fail_at(1);
    const int result = ring_open(kind, 8, &ring, &error);
    memory_fail_at(0);
    CHECK(kind == RING_AUTO && have_uring ? result == 0 : result == -ENOMEM && ring == NULL && error.text[0] != '\0');
    ring_close(ring);
}

/* Without io_uring: RING_URING says so, RING_AUTO takes threads. In a child, for it cannot be undone. */
static int run_forbidden(void) {
    struct sock_filter filter[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_io_uring_setup, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    const struct sock_fprog program = {sizeof filter / sizeof filter[0], filter};
    struct error error = {0};
    struct ring *ring = NULL;
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0 || prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) < 0) return 0;
    if (ring_open(RING_URING, 1, &ring, &error) != -ENOTSUP || !strstr(error.text, "io_uring is not available")) return 1;
    error_clear(&error);
    if (ring_open(RING_AUTO, 1, &ring, &error) != 0 || strcmp(ring->ops->name, "threads") != 0) return 2;
    ring_close(ring);
    return 0;
}

static void test_forbidden(void) {
    int status = 0;
    const pid_t child = fork();
    if (child == 0) _exit(run_forbidden());
    CHECK(child > 0 && waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

static unsigned open_descriptors(void) {
    unsigned count = 0;
    DIR *directory = opendir("/proc/self/fd");
    while (directory && readdir(directory)) count++;
    if (directory) closedir(directory);
    return count;
}

static void find_out(const char *directory) {
    struct error error = {0};
    struct file *file = NULL;
    struct ring *ring = NULL;
    snprintf(path, sizeof path, "%s/qcow2-ring-test-%d", directory, (int) getpid());
    have_direct = file_posix_open(path, FILE_POSIX_WRITE | FILE_POSIX_CREATE | FILE_POSIX_DIRECT, &file, &error) == 0;
    if (!have_direct) printf("ring: %s\n", error.text);
    error_clear(&error);
    have_uring = ring_open(RING_URING, 1, &ring, &error) == 0;
    if (!have_uring) printf("ring: %s\n", error.text);
    ring_close(ring);
    file_release(file);
}

static void test_form(enum ring_kind kind) {
    test_no_memory(kind);
    test_random_depths(kind, new_memory());
    test_random_depths(kind, new_file(0));
    if (have_direct) test_random_depths(kind, new_file(FILE_POSIX_DIRECT));
    test_wakes(kind);
    test_errors(kind);
}

int main(int count, char **arguments) {
    const uint64_t held = memory_held();
    const unsigned descriptors = open_descriptors();
    unit_start();
    alarm(ALARM_SECONDS);
    signal(SIGXFSZ, SIG_IGN);
    find_out(count > 1 ? arguments[1] : getenv("TMPDIR") ? getenv("TMPDIR") : "/tmp");
    test_forbidden();
    test_depths();
    test_form(RING_SYNC);
    test_form(RING_THREADS);
    test_form(RING_AUTO);
    if (have_uring) test_form(RING_URING);
    test_all_neighbours(0);
    if (have_direct) test_all_neighbours(FILE_POSIX_DIRECT);
    unlink(path);
    CHECK(memory_held() == held && open_descriptors() == descriptors);
    return unit_end("ring");
}
