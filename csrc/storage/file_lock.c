/* SPDX-License-Identifier: MIT
 *
 * OFD byte locks, shared with other programs that use qcow2 images.
 *
 * For each permission n, byte 100 + n says "I use it" and byte 200 + n "I let nobody else use it". Both are held as
 * shared locks, so any number of processes can say so; a conflict shows when one asks whether an exclusive lock would
 * be granted on the other byte: 200 + n for what we use, 100 + n for what we refuse to others.
 * Invariant: first take, then test, then let go of what is no longer needed; so two processes that start together may
 * both fail but never both succeed, and a failed change keeps the old locks. Locks belong to the open file
 * description and end when it is closed. Called by file_posix; never waits.
 */
#define _GNU_SOURCE 1

#include "storage/file_lock.h"

#include <fcntl.h>
#include <string.h>
#include <unistd.h>

#define PERMISSION_COUNT 4u
#define USE_BASE 100u
#define REFUSE_BASE 200u

enum { /* permissions; REFUSE shifts one to "I let nobody else use it" */
    CONSISTENT_READ = 1,
    WRITE = 2,
    WRITE_UNCHANGED = 4,
    RESIZE = 8,
};
#define REFUSE(permissions) ((unsigned) (permissions) << PERMISSION_COUNT)

static const char *const permission_names[PERMISSION_COUNT] = {"consistent read", "write", "write unchanged", "resize"};

static const unsigned wanted[] = {
    [FILE_USE_WRITE] = CONSISTENT_READ | WRITE | RESIZE | REFUSE(WRITE | RESIZE),
    [FILE_USE_READ] = CONSISTENT_READ | REFUSE(WRITE | RESIZE),
    [FILE_USE_READ_SHARED] = CONSISTENT_READ,
    [FILE_USE_NOTHING] = 0,
};

/* Bit 0–3: byte 100–103; bit 4–7: byte 200–203. */
static off_t byte_of(unsigned bit) { return bit < PERMISSION_COUNT ? USE_BASE + bit : REFUSE_BASE + bit - PERMISSION_COUNT; }

static int set_lock(int fd, unsigned bit, short type) {
    struct flock lock = {.l_type = type, .l_whence = SEEK_SET, .l_start = byte_of(bit), .l_len = 1};
    int result;
    do result = fcntl(fd, F_OFD_SETLK, &lock);
    while (result < 0 && errno == EINTR);
    return result < 0 ? -errno : 0;
}

/* Whether someone else's lock stands on the bit's byte. 0, -EAGAIN or an error. */
static int test_lock(int fd, unsigned bit) {
    struct flock lock = {.l_type = F_WRLCK, .l_whence = SEEK_SET, .l_start = byte_of(bit), .l_len = 1};
    if (fcntl(fd, F_OFD_GETLK, &lock) < 0) return -errno;
    return lock.l_type == F_UNLCK ? 0 : -EAGAIN;
}

static void unlock_all(int fd, unsigned bits) {
    for (unsigned bit = 0; bit < 2 * PERMISSION_COUNT; bit++)
        if (bits >> bit & 1) set_lock(fd, bit, F_UNLCK);
}

/* Takes every lock in `missing`. On failure *failed is the bit, and those before it are taken. */
static int lock_all(int fd, unsigned missing, unsigned *failed) {
    for (unsigned bit = 0; bit < 2 * PERMISSION_COUNT; bit++) {
        *failed = bit;
        const int result = missing >> bit & 1 ? set_lock(fd, bit, F_RDLCK) : 0;
        if (result < 0) return result == -EACCES ? -EAGAIN : result;
    }
    return 0;
}

/* Tests the byte opposite to each one that we hold. On failure *failed is the bit we hold. */
static int test_all(int fd, unsigned bits, unsigned *failed) {
    for (unsigned bit = 0; bit < 2 * PERMISSION_COUNT; bit++) {
        *failed = bit;
        const int result = bits >> bit & 1 ? test_lock(fd, bit ^ PERMISSION_COUNT) : 0;
        if (result < 0) return result;
    }
    return 0;
}

static int explain(const char *name, unsigned bit, int code, struct error *error) {
    const char *shared = bit < PERMISSION_COUNT ? "" : "shared ";
    const char *permission = permission_names[bit % PERMISSION_COUNT];
    if (code == -EAGAIN)
        return error_set(error, code, "failed to get %s\"%s\" lock: Is another process using the image '%s', or is it open here already?",
                         shared, permission, name);
    return error_set(error, code, "failed to get %s\"%s\" lock on '%s': %s", shared, permission, name, strerror(-code));
}

static int no_locks_here(int code) { return code == -EINVAL || code == -ENOLCK || code == -ENOSYS || code == -EOPNOTSUPP; }

int file_lock_change(int fd, unsigned *held, enum file_use use, const char *name, struct error *error) {
    const unsigned bits = wanted[use];
    unsigned failed = 0;
    int result = lock_all(fd, bits & ~*held, &failed);
    if (result == 0) result = test_all(fd, bits, &failed);
    if (result < 0) {
        unlock_all(fd, bits & ~*held);
        return no_locks_here(result) ? 0 : explain(name, failed, result, error);
    }
    unlock_all(fd, *held & ~bits);
    *held = bits;
    return 0;
}
