/* SPDX-License-Identifier: MIT
 *
 * Running jobs to their end: all of them in one thread on one ring (a simulated disk, a scheduler in between), or each in
 * a native worker with a ring of its own.
 */
#ifndef QCOW2_JOBS_LOOP_H
#define QCOW2_JOBS_LOOP_H

#include "jobs/job.h"

/* Runs jobs that share `ring` until all are over, in the caller's thread. */
void loop_run(struct ring *ring, struct job *const *jobs, unsigned count);

#endif
