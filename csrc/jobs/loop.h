/* SPDX-License-Identifier: MIT
 *
 * Running the jobs of one ring to their end, in one thread: all jobs of a run where they are on a simulated disk or below a
 * scheduler, else one, in a native worker.
 */
#ifndef QCOW2_JOBS_LOOP_H
#define QCOW2_JOBS_LOOP_H

#include "jobs/job.h"

/* Runs jobs that share `ring` until all are over, in the caller's thread. */
void loop_run(struct ring *ring, struct job *const *jobs, unsigned count);

#endif
