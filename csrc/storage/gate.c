/* SPDX-License-Identifier: MIT
 *
 * One mutex, one condition, a count of threads and a list of guests.
 *
 * Invariant: alone, or together and guests, never both. Those who want to be alone come first, else a stream of aligned
 * writes would starve an unaligned one. The gate is unlocked while a guest's owner collects, for collecting ends in
 * gate_dismiss; what keeps the guest's memory meanwhile is `hold`.
 * Called by file_posix within its operations and by the io_uring ring around an O_DIRECT write.
 */
#include "storage/gate.h"

void gate_init(struct gate *gate) {
    *gate = (struct gate){.guests = NULL};
    pthread_mutex_init(&gate->lock, NULL);
    pthread_cond_init(&gate->changed, NULL);
}

void gate_destroy(struct gate *gate) {
    pthread_mutex_destroy(&gate->lock);
    pthread_cond_destroy(&gate->changed);
}

static void collect_from(struct gate *gate, struct gate_guest *guest) {
    guest->hold(guest);
    pthread_mutex_unlock(&gate->lock);
    guest->collect(guest);
    pthread_mutex_lock(&gate->lock);
}

static void wait_until_empty(struct gate *gate) {
    gate->waiting++;
    while (gate->alone || gate->together > 0 || gate->guests) {
        if (gate->guests) collect_from(gate, gate->guests);
        else pthread_cond_wait(&gate->changed, &gate->lock);
    }
    gate->waiting--;
}

static bool is_open(const struct gate *gate) { return !gate->alone && gate->waiting == 0; }

void gate_enter(struct gate *gate, bool alone) {
    pthread_mutex_lock(&gate->lock);
    if (alone) {
        wait_until_empty(gate);
        gate->alone = true;
    } else {
        while (!is_open(gate)) pthread_cond_wait(&gate->changed, &gate->lock);
        gate->together++;
    }
    pthread_mutex_unlock(&gate->lock);
}

void gate_leave(struct gate *gate) {
    pthread_mutex_lock(&gate->lock);
    if (gate->alone) gate->alone = false;
    else gate->together--;
    if (gate->together == 0) pthread_cond_broadcast(&gate->changed);
    pthread_mutex_unlock(&gate->lock);
}

bool gate_admit(struct gate *gate, struct gate_guest *guest, bool wait) {
    pthread_mutex_lock(&gate->lock);
    while (wait && !is_open(gate)) pthread_cond_wait(&gate->changed, &gate->lock);
    const bool admitted = is_open(gate);
    if (admitted) {
        guest->next = gate->guests;
        guest->place = &gate->guests;
        if (guest->next) guest->next->place = &guest->next;
        gate->guests = guest;
    }
    pthread_mutex_unlock(&gate->lock);
    return admitted;
}

void gate_dismiss(struct gate *gate, struct gate_guest *guest) {
    pthread_mutex_lock(&gate->lock);
    *guest->place = guest->next;
    if (guest->next) guest->next->place = guest->place;
    if (!gate->guests) pthread_cond_broadcast(&gate->changed);
    pthread_mutex_unlock(&gate->lock);
}
