/* SPDX-License-Identifier: MIT
 *
 * A list of those who wait for one thing. A waiter is in at most one list; waking empties the list and calls each
 * waiter once. All of it happens under the lock of whatever is waited for, so `wake` must only note
 * the fact (set a flag, signal, enqueue) and never wait itself.
 */
#ifndef QCOW2_BASE_WAITERS_H
#define QCOW2_BASE_WAITERS_H

#include <stddef.h>

struct waiter {
    struct waiter *next;
    void (*wake)(struct waiter *waiter);
};

struct waiters {
    struct waiter *first;
};

static inline void waiters_add(struct waiters *waiters, struct waiter *waiter) {
    waiter->next = waiters->first;
    waiters->first = waiter;
}

static inline void waiters_wake(struct waiters *waiters) {
    struct waiter *waiter = waiters->first;
    waiters->first = NULL;
    while (waiter != NULL) {
        struct waiter *next = waiter->next;
        waiter->next = NULL;
        waiter->wake(waiter);
        waiter = next;
    }
}

#endif
