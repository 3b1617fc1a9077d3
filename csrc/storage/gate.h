/* SPDX-License-Identifier: MIT
 *
 * A gate: many are inside together, or one is inside alone. Unlike a rwlock it belongs to no thread, for a ring's write stays inside
 * while the ring's thread does other things.
 *
 * Whoever wants to be alone never waits for such a thread, which may itself be waiting, or be the very same one: it collects
 * what the ring's kernel queue has ended. So all that anybody waits for at a gate is the kernel, or
 * another thread within a call that ends by itself.
 */
#ifndef QCOW2_STORAGE_GATE_H
#define QCOW2_STORAGE_GATE_H

#include <pthread.h>
#include <stdbool.h>

struct gate_guest {                            /* an operation that is inside without a thread; its owner's memory */
    void (*hold)(struct gate_guest *guest);    /* called with the gate locked: the memory stays until collect has been called */
    void (*collect)(struct gate_guest *guest); /* waits until some guest of the same owner has ended and makes it leave, or returns early */
    struct gate_guest *next, **place;          /* the gate's */
};

struct gate {
    pthread_mutex_t lock;
    pthread_cond_t changed;
    struct gate_guest *guests;
    unsigned together; /* threads inside */
    unsigned waiting;  /* threads that want to be alone; nobody goes in before them */
    bool alone;        /* one is */
};

void gate_init(struct gate *gate);
void gate_destroy(struct gate *gate);

/* Goes in, for the length of a call. A thread that is inside never enters again. */
void gate_enter(struct gate *gate, bool alone);
void gate_leave(struct gate *gate);

/* Lets a guest in. False when somebody is alone inside or wants to be; with `wait`, waits for that instead, and then the kernel must
 * have been given all of the owner's guests that are inside. */
bool gate_admit(struct gate *gate, struct gate_guest *guest, bool wait);

/* The guest goes out; from any thread. */
void gate_dismiss(struct gate *gate, struct gate_guest *guest);

#endif
