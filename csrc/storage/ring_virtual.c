/* SPDX-License-Identifier: MIT
 *
 * A ring in virtual time: a discrete-event simulation with one thread.
 *
 * Submitting moves the bytes at once and gives the operation to the model's device; what failed is told at once. Nothing happens by
 * itself: time goes on only in a reap that waits, to the next end or as far as it may, so whatever the caller starts between two reaps
 * starts at the same time, and the same calls give the same times. Jobs on other files are done in their submit.
 * A job has one of `depth` slots from submit to reap. Invariant: each slot is free, with the device, or in `done`.
 * Only ring_wake may come from another thread.
 */
#include <assert.h>
#include <stdatomic.h>

#include "base/memory.h"
#include "storage/file_model.h"

struct slot {
    struct model_wait wait; /* first, so that what is taken from `done` is a slot */
    struct ring_job *job;
    struct slot *next_free;
};

struct virtual_ring {
    struct ring ring;
    struct file *model;
    struct model_done done;
    struct slot *slots, *free;
    unsigned under_way;
    atomic_bool woken;
};

static struct virtual_ring *virtual_of(struct ring *ring) { return (struct virtual_ring *) ring; }

static void virtual_submit(struct ring *ring, struct ring_job *job) {
    struct virtual_ring *self = virtual_of(ring);
    struct slot *slot = self->free;
    assert(slot != NULL); /* at most `depth` are under way */
    self->free = slot->next_free;
    self->under_way++;
    slot->job = job;
    error_clear(&job->error);
    if (job->move.file == self->model) {
        file_model_start(&job->move, &self->done, &slot->wait, &job->error);
    } else {
        move_carry_out(&job->move, &job->error);
        file_model_finish(self->model, &self->done, &slot->wait);
    }
}

static struct slot *take(struct virtual_ring *self, uint64_t until) {
    return (struct slot *) file_model_take(self->model, &self->done, until);
}

static struct ring_job *virtual_reap(struct ring *ring, uint64_t until) {
    struct virtual_ring *self = virtual_of(ring);
    struct slot *slot = take(self, 0);
    const bool may_wait = until > 0 && !slot && !atomic_exchange(&self->woken, false);
    if (may_wait && (until != RING_FOREVER || self->under_way > 0)) slot = take(self, until);
    if (!slot) return NULL;
    slot->next_free = self->free;
    self->free = slot;
    self->under_way--;
    return slot->job;
}

static void virtual_wake(struct ring *ring) { atomic_store(&virtual_of(ring)->woken, true); }

static uint64_t virtual_now(struct ring *ring) { return file_model_clock(virtual_of(ring)->model); }

static void virtual_pass(struct ring *ring, uint64_t nanoseconds) { file_model_pass(virtual_of(ring)->model, nanoseconds); }

static void virtual_close(struct ring *ring) {
    struct virtual_ring *self = virtual_of(ring);
    assert(self->under_way == 0);
    file_release(self->model);
    memory_free(self->slots);
    memory_free(self);
}

static const struct ring_ops virtual_ops = {
    .name = "virtual",
    .submit = virtual_submit,
    .reap = virtual_reap,
    .wake = virtual_wake,
    .now = virtual_now,
    .pass = virtual_pass,
    .close = virtual_close,
};

int ring_virtual_open(struct file *model, unsigned depth, struct ring **ring, struct error *error) {
    if (!file_is_model(model)) return error_set(error, -EINVAL, "'%s' is not on a simulated disk", model->name);
    if (depth == 0 || depth > RING_VIRTUAL_DEPTH_MAX)
        return error_set(error, -EINVAL, "a ring in virtual time takes 1 to %u operations at a time, not %u", RING_VIRTUAL_DEPTH_MAX,
                         depth);
    struct virtual_ring *self = memory_zeroed(sizeof *self);
    struct slot *slots = memory_array(depth, sizeof *slots);
    if (!self || !slots) {
        memory_free(self);
        memory_free(slots);
        return error_set(error, -ENOMEM, "no memory for a ring of %u jobs", depth);
    }
    for (unsigned i = depth; i-- > 0;) {
        slots[i].next_free = self->free;
        self->free = &slots[i];
    }
    self->ring.ops = &virtual_ops;
    self->model = file_share(model);
    self->slots = slots;
    *ring = &self->ring;
    return 0;
}

int ring_open_on(struct file *file, enum ring_kind kind, unsigned depth, struct ring **ring, struct error *error) {
    return file_is_model(file) ? ring_virtual_open(file, depth, ring, error) : ring_open(kind, depth, ring, error);
}
