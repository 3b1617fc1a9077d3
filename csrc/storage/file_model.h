/* SPDX-License-Identifier: MIT
 *
 * A file on a simulated disk: bytes go to and come from the file below at once, time is the device's. A synchronous call moves the
 * virtual clock to the operation's end; through a virtual ring many operations share the device, and the clock goes from event to event.
 *
 * Reads, writes and syncs (a flush) cost what the device says. Zeroing and discarding cost a trim, for no data goes to the disk;
 * truncating, allocating and asking for the length cost nothing: a filesystem does these in memory. What fails costs nothing either.
 * The file ends where the device does: -ENOSPC.
 */
#ifndef QCOW2_STORAGE_FILE_MODEL_H
#define QCOW2_STORAGE_FILE_MODEL_H

#include "storage/device.h"
#include "storage/file.h"
#include "storage/ring.h"

/* A file over `below` (shared, not taken) on a new device, at time 0. Any thread may use it; synchronous calls go one after the other. */
int file_model_open(const struct device_parameters *parameters, struct file *below, struct file **file, struct error *error);

/* Whether the file is one of these. */
bool file_is_model(const struct file *file);

/* The device's clock, in nanoseconds of virtual time. */
uint64_t file_model_clock(struct file *file);

/* The parameters, for reports. */
const struct device_parameters *file_model_parameters(const struct file *file);

/* A ring in the file's virtual time, for jobs on it; jobs on other files are done in ring_submit and take no time. ring_reap lets the
 * time go on to the next end or to `until`; RING_FOREVER with nothing of this ring under way returns NULL and the clock stays. At most
 * RING_VIRTUAL_DEPTH_MAX at a time. The clock
 * is the file's: other rings and synchronous calls move it too. */
int ring_virtual_open(struct file *model, unsigned depth, struct ring **ring, struct error *error);

/* A ring for jobs on the file: in its virtual time if it has one, else one of `kind` (ring_open). */
int ring_open_on(struct file *file, enum ring_kind kind, unsigned depth, struct ring **ring, struct error *error);

/* ---- for ring_virtual.c ---- */

struct model_wait {          /* who waits for an operation; the caller's memory, left alone until it is over */
    struct model_done *done; /* where it goes when it is over */
    struct model_wait *next;
};

struct model_done { /* operations that are over, in order of time */
    struct model_wait *first, *last;
};

/* Carries the move out and submits its operation; at its end `wait` goes to `done`, at once when it takes no time. Returns 0 or a
 * negative errno with a sentence, like move_carry_out. */
int file_model_start(const struct move *move, struct model_done *done, struct model_wait *wait, struct error *error);

/* `wait` is over now, without an operation. */
void file_model_finish(struct file *file, struct model_done *done, struct model_wait *wait);

/* Time goes on by so much; what ends in it is over. */
void file_model_pass(struct file *file, uint64_t nanoseconds);

/* The first of `done`, NULL when there is none. Before that, while `done` is empty, lets time go on to `until` (0 = not at all). */
struct model_wait *file_model_take(struct file *file, struct model_done *done, uint64_t until);

#endif
