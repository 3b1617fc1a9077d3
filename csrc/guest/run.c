/* SPDX-License-Identifier: MIT
 *
 * The synchronous driver: carries a request out in the caller's thread. When the request is parked the thread sleeps until
 * it is woken. One of several drivers; queues carry out many requests at once with the same request code.
 */
#include "guest/request.h"

struct sleeper { /* the thread that waits */
    pthread_mutex_t lock;
    pthread_cond_t woken;
    bool awake;
};

static void wake(struct request *request) {
    struct sleeper *sleeper = request->owner;
    pthread_mutex_lock(&sleeper->lock);
    sleeper->awake = true;
    pthread_cond_signal(&sleeper->woken);
    pthread_mutex_unlock(&sleeper->lock);
}

static void sleep_until_woken(struct sleeper *sleeper) {
    pthread_mutex_lock(&sleeper->lock);
    while (!sleeper->awake) pthread_cond_wait(&sleeper->woken, &sleeper->lock);
    sleeper->awake = false;
    pthread_mutex_unlock(&sleeper->lock);
}

int request_run(struct request *request) {
    struct sleeper sleeper = {.lock = PTHREAD_MUTEX_INITIALIZER, .woken = PTHREAD_COND_INITIALIZER};
    request->owner = &sleeper;
    request->wake = wake;
    for (;;) {
        switch (request_advance(request)) {
            case REQUEST_MOVE: request_moved(request, moves_carry_out(&request->moves, &request->error)); break;
            case REQUEST_PARKED: sleep_until_woken(&sleeper); break;
            case REQUEST_DONE:
                pthread_cond_destroy(&sleeper.woken);
                pthread_mutex_destroy(&sleeper.lock);
                return request->error.code;
        }
    }
}

int request_run_into(struct request *request, struct error *error) {
    return request_run(request) < 0 ? error_set(error, request->error.code, "%s", request->error.text) : 0;
}

int request_flush(struct image *image, struct error *error) {
    struct request request;
    request_start(&request, image, REQUEST_FLUSH, 0, 0, NULL);
    return request_run_into(&request, error);
}
