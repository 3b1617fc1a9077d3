/* SPDX-License-Identifier: MIT
 *
 * A simulated disk: how long operations take, in virtual time, given what else is queued. It moves no bytes.
 *
 * hdd: one arm. A read is: command_time, the seek (a square root of the distance up to a third of the tracks, linear beyond), the wait
 * until the sector comes round, the transfer at its zone's rate (outer tracks are longer). Of the operations inside, at most queue_depth,
 * the one whose positioning is shortest is served next, but one that was overtaken OVERTAKEN_MAX times (device_hdd.c) goes first. A read
 * that begins where the last one ended goes on at the media rate: the head has read ahead into a buffer of one track. Writes go into the
 * write cache at the interface's rate while it has room, are read from there, and reach the disk when the arm has had nothing else to do
 * for a revolution, or when room or a flush is waited for: always what the arm reaches first of its dirty neighbours. A flush ends when
 * all before it have ended and the cache is empty; what comes later waits outside.
 *
 * ssd, nvme: stations in a row, each a first-come-first-served queue: the controller (command_time), one die of one channel (read_time or
 * write_time), the channel (transfer), the interface (transfer); for writes interface and channel come before the die. An operation is cut
 * at stripe boundaries, and each part goes to the channel and die of its address. After the command, a trim takes trim_time; a flush gives
 * its command when all writes before it have ended, and takes flush_time. What comes later does not wait for it.
 *
 * Same parameters and submissions: the same times to the nanosecond on every machine (integer arithmetic only).
 * Not thread-safe. What lies past the capacity counts as at its end.
 */
#ifndef QCOW2_STORAGE_DEVICE_H
#define QCOW2_STORAGE_DEVICE_H

#include <stdint.h>

#include "storage/device_parameters.h"

#define DEVICE_TIME_MAX UINT64_MAX /* no bound on time */

struct device;

/* A device at time 0 with nothing under way. The parameters have passed device_check. Returns 0 or -ENOMEM. */
int device_new(const struct device_parameters *parameters, struct device **device);

/* Operations under way are forgotten. NULL is ignored. */
void device_free(struct device *device);

/* An operation arrives at `now`, which no earlier call went past. `token` (not 0) names it in device_next. Returns 0 or -ENOMEM: then
 * nothing has arrived. */
int device_submit(struct device *device, enum device_operation operation, uint64_t offset, uint64_t length, uint64_t now, uint64_t token);

/* Lets time go on to the next end of an operation, and returns its token; or to `until`, and returns 0 when nothing ends by then.
 * With DEVICE_TIME_MAX, 0 means that nothing is under way. Ties end in order of arrival. What arrives at the very time that this
 * stopped at still takes part in what the device decides at that time. */
uint64_t device_next(struct device *device, uint64_t until, uint64_t *ended_at);

const struct device_parameters *device_parameters_of(const struct device *device);

#endif
