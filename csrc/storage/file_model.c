/* SPDX-License-Identifier: MIT
 *
 * A file whose bytes are below and whose time is a device's.
 *
 * Each operation does the same three steps: carry it out below, submit it to the device at the present time, wait. To wait is to let the
 * device go on until this operation is over; others that end on the way go to their own `done` lists. A ring does the first two steps
 * alone, by file_model_start.
 * Invariant: the clock is the time of the last end that was taken from the device, or a later one that somebody waited for; it never
 * goes back.
 * One mutex over device and clock, never held during I/O below. Threads that call synchronously share the clock but not the disk:
 * each call is over in virtual time before the next begins. Called through file.h and by ring_virtual.c.
 */
#include "storage/file_model.h"

#include <assert.h>
#include <pthread.h>

#include "base/bytes.h"
#include "base/memory.h"
#include "storage/vector.h"

struct file_model {
    struct file file;
    struct file *below;
    pthread_mutex_t lock; /* over the two below and all done lists */
    struct device *device;
    uint64_t now;
};

static struct file_model *model_of(struct file *file) { return (struct file_model *) file; }

/* ---- time, under the lock ---- */

static void add_done(struct model_wait *wait) {
    struct model_done *done = wait->done;
    wait->next = NULL;
    if (done->first) done->last->next = wait;
    else done->first = wait;
    done->last = wait;
}

/* Lets time go on to the next end. False: there is none by `until`, which is the time now. */
static bool pass_one(struct file_model *model, uint64_t until) {
    uint64_t ended_at;
    const uint64_t token = device_next(model->device, until, &ended_at);
    if (token == 0) {
        if (until != DEVICE_TIME_MAX) model->now = max_u64(model->now, until);
        return false;
    }
    model->now = max_u64(model->now, ended_at);
    add_done((struct model_wait *) (uintptr_t) token);
    return true;
}

/* ---- what an operation costs ---- */

/* Whether the operation goes to the device, and as what. */
static bool takes_time(enum file_operation operation, enum device_operation *what) {
    switch (operation) {
        case FILE_READ: *what = DEVICE_READ; return true;
        case FILE_WRITE: *what = DEVICE_WRITE; return true;
        case FILE_ZERO:
        case FILE_DISCARD: *what = DEVICE_TRIM; return true;
        case FILE_SYNC: *what = DEVICE_FLUSH; return true;
        case FILE_ALLOCATE:
        case FILE_TRUNCATE: return false;
    }
    return false;
}

/* 0, or -ENOSPC for what would make the file longer than the device. Reads past its end find zeroes, discards nothing. */
static int check_room(const struct file_model *model, enum file_operation operation, uint64_t offset, uint64_t length) {
    const bool grows = operation != FILE_READ && operation != FILE_DISCARD && operation != FILE_SYNC;
    return !grows || within_u64(offset, length, device_parameters_of(model->device)->capacity) ? 0 : -ENOSPC;
}

/* Submits what was carried out below; `wait` goes to its done list when it is over, which is now when it takes no time. Returns 0 or
 * -ENOMEM. */
static int submit(struct file_model *model, enum file_operation operation, uint64_t offset, uint64_t length, struct model_wait *wait) {
    enum device_operation what;
    int result = 0;
    pthread_mutex_lock(&model->lock);
    const bool is_on_device = takes_time(operation, &what);
    if (is_on_device) result = device_submit(model->device, what, offset, length, model->now, (uintptr_t) wait);
    if (!is_on_device || result < 0) add_done(wait);
    pthread_mutex_unlock(&model->lock);
    return result;
}

/* The last two steps of a synchronous call: submits unless `result` says that it failed, and waits. */
static int submit_and_wait(struct file_model *model, enum file_operation operation, uint64_t offset, uint64_t length, int result) {
    struct model_done done = {0};
    struct model_wait wait = {.done = &done};
    if (result < 0) return result;
    result = submit(model, operation, offset, length, &wait);
    file_model_take(&model->file, &done, DEVICE_TIME_MAX);
    return result;
}

/* ---- operations; the sentence is written by our own wrapper ---- */

static int model_readv(struct file *file, uint64_t offset, const struct iovec *vector, int count) {
    struct file_model *model = model_of(file);
    struct error error = {0};
    uint64_t length;
    if (!vector_total(vector, count, &length)) return -EINVAL;
    return submit_and_wait(model, FILE_READ, offset, length, file_readv(model->below, offset, vector, count, &error));
}

static int model_writev(struct file *file, uint64_t offset, const struct iovec *vector, int count) {
    struct file_model *model = model_of(file);
    struct error error = {0};
    uint64_t length;
    if (!vector_total(vector, count, &length)) return -EINVAL;
    int result = check_room(model, FILE_WRITE, offset, length);
    if (result == 0) result = file_writev(model->below, offset, vector, count, &error);
    return submit_and_wait(model, FILE_WRITE, offset, length, result);
}

static int model_zero(struct file *file, uint64_t offset, uint64_t length, unsigned mode) {
    struct file_model *model = model_of(file);
    struct error error = {0};
    int result = check_room(model, FILE_ZERO, offset, length);
    if (result == 0) result = file_zero(model->below, offset, length, mode, &error);
    return submit_and_wait(model, FILE_ZERO, offset, length, result);
}

static int model_discard(struct file *file, uint64_t offset, uint64_t length) {
    struct file_model *model = model_of(file);
    struct error error = {0};
    return submit_and_wait(model, FILE_DISCARD, offset, length, file_discard(model->below, offset, length, &error));
}

static int model_allocate(struct file *file, uint64_t offset, uint64_t length) {
    struct file_model *model = model_of(file);
    struct error error = {0};
    const int result = check_room(model, FILE_ALLOCATE, offset, length);
    return result < 0 ? result : file_allocate(model->below, offset, length, &error);
}

static int model_truncate(struct file *file, uint64_t length) {
    struct file_model *model = model_of(file);
    struct error error = {0};
    const int result = check_room(model, FILE_TRUNCATE, 0, length);
    return result < 0 ? result : file_truncate(model->below, length, &error);
}

static int model_sync(struct file *file) {
    struct file_model *model = model_of(file);
    struct error error = {0};
    return submit_and_wait(model, FILE_SYNC, 0, 0, file_sync(model->below, &error));
}

static int model_length(struct file *file, uint64_t *length) {
    struct error error = {0};
    return file_length(model_of(file)->below, length, &error);
}

static int model_lock(struct file *file, enum file_use from, enum file_use to, struct error *error) {
    return file_change_use(model_of(file)->below, from, to, error);
}

static void model_destroy(struct file *file) {
    struct file_model *model = model_of(file);
    device_free(model->device);
    file_release(model->below);
    pthread_mutex_destroy(&model->lock);
    memory_free(model);
}

static const struct file_ops model_ops = {
    .kind = "model",
    .readv = model_readv,
    .writev = model_writev,
    .zero = model_zero,
    .discard = model_discard,
    .allocate = model_allocate,
    .truncate = model_truncate,
    .sync = model_sync,
    .length = model_length,
    .lock = model_lock,
    .destroy = model_destroy,
};

/* ---- the file ---- */

static int check_length(struct file *below, const struct device_parameters *parameters, struct error *error) {
    uint64_t length = 0;
    const int result = file_length(below, &length, error);
    if (result < 0 || length <= parameters->capacity) return result;
    return error_set(error, -EINVAL, "'%s' has %llu bytes, more than the simulated disk's capacity of %llu", below->name,
                     (unsigned long long) length, (unsigned long long) parameters->capacity);
}

int file_model_open(const struct device_parameters *parameters, struct file *below, struct file **file, struct error *error) {
    if (device_check(parameters, error) < 0 || check_length(below, parameters, error) < 0) return error->code;
    struct file_model *model = memory_zeroed(sizeof *model);
    if (!model || device_new(parameters, &model->device) < 0 || file_init(&model->file, &model_ops, below->name) < 0) {
        if (model) device_free(model->device);
        memory_free(model);
        return error_set(error, -ENOMEM, "no memory for a simulated disk under '%s'", below->name);
    }
    pthread_mutex_init(&model->lock, NULL);
    model->below = file_share(below);
    model->file.alignment = below->alignment;
    model->file.read_only = below->read_only;
    model->file.grows_as_zeroes = below->grows_as_zeroes;
    model->file.zero_after_discard = below->zero_after_discard;
    model->file.no_sync = below->no_sync;
    *file = &model->file;
    return 0;
}

bool file_is_model(const struct file *file) { return file->ops == &model_ops; }

uint64_t file_model_clock(struct file *file) {
    struct file_model *model = model_of(file);
    pthread_mutex_lock(&model->lock);
    const uint64_t now = model->now;
    pthread_mutex_unlock(&model->lock);
    return now;
}

const struct device_parameters *file_model_parameters(const struct file *file) {
    return device_parameters_of(((const struct file_model *) file)->device);
}

/* ---- for rings ---- */

static enum file_operation operation_of(const struct move *move) {
    switch (move->kind) {
        case MOVE_READ: return FILE_READ;
        case MOVE_WRITE: return FILE_WRITE;
        case MOVE_ZERO: return FILE_ZERO;
        case MOVE_DISCARD: return FILE_DISCARD;
        case MOVE_TRUNCATE: return FILE_TRUNCATE;
        case MOVE_ALLOCATE: return FILE_ALLOCATE;
        case MOVE_SYNC: return FILE_SYNC;
    }
    return FILE_SYNC;
}

/* Whether there is anything to do, as file.h sees it: only then is it counted and carried out. */
static bool is_empty(const struct file *file, enum file_operation operation, uint64_t length) {
    if (operation == FILE_SYNC) return file->no_sync;
    return operation != FILE_TRUNCATE && length == 0;
}

/* The first step of a ring's move: what file.h does, on the file below. */
static int carry_out_below(struct file_model *model, const struct move *move, enum file_operation operation, uint64_t offset,
                           uint64_t length) {
    struct error error = {0};
    struct move below = *move;
    file_count(&model->file, operation, length);
    below.file = model->below;
    const int result = check_room(model, operation, offset, length);
    return result < 0 ? result : move_carry_out(&below, &error);
}

int file_model_start(const struct move *move, struct model_done *done, struct model_wait *wait, struct error *error) {
    struct file_model *model = model_of(move->file);
    const enum file_operation operation = operation_of(move);
    const uint64_t offset = operation == FILE_TRUNCATE ? 0 : move->offset,
                   length = operation == FILE_TRUNCATE ? move->offset : move->length;
    assert(file_is_model(move->file));
    wait->done = done;
    int result = file_check(move->file, operation, offset, length);
    const bool goes_down = result == 0 && !is_empty(move->file, operation, length);
    if (goes_down) result = carry_out_below(model, move, operation, offset, length);
    if (goes_down && result == 0) result = submit(model, operation, offset, length, wait);
    else file_model_finish(move->file, done, wait);
    return file_explain(move->file, operation, offset, length, result, error);
}

void file_model_finish(struct file *file, struct model_done *done, struct model_wait *wait) {
    struct file_model *model = model_of(file);
    wait->done = done;
    pthread_mutex_lock(&model->lock);
    add_done(wait);
    pthread_mutex_unlock(&model->lock);
}

struct model_wait *file_model_take(struct file *file, struct model_done *done, uint64_t until) {
    struct file_model *model = model_of(file);
    pthread_mutex_lock(&model->lock);
    const uint64_t limit = max_u64(model->now, until); /* what ends at this very time is over */
    while (!done->first && pass_one(model, limit)) continue;
    struct model_wait *wait = done->first;
    if (wait) done->first = wait->next;
    pthread_mutex_unlock(&model->lock);
    return wait;
}

void file_model_pass(struct file *file, uint64_t nanoseconds) {
    struct file_model *model = model_of(file);
    pthread_mutex_lock(&model->lock);
    const uint64_t until = model->now + nanoseconds;
    while (pass_one(model, until)) continue;
    pthread_mutex_unlock(&model->lock);
}
