/* SPDX-License-Identifier: MIT
 *
 * Condition variables whose timed waits end by the monotonic clock, which nobody sets.
 */
#ifndef QCOW2_BASE_TIMED_H
#define QCOW2_BASE_TIMED_H

#include <pthread.h>
#include <time.h>

static inline void timed_init(pthread_cond_t *condition) {
    pthread_condattr_t attributes;
    pthread_condattr_init(&attributes);
    pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
    pthread_cond_init(condition, &attributes);
    pthread_condattr_destroy(&attributes);
}

#endif
