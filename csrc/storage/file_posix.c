/* SPDX-License-Identifier: MIT
 *
 * A real file or block device through pread, pwrite and fallocate.
 *
 * Buffered files take no lock: the kernel does everything that a caller may see. With O_DIRECT the kernel refuses what is
 * not aligned, so such a request goes through a bounce buffer (at most BOUNCE_SIZE), and such a write first reads the
 * sectors at its edges. Invariant: while somebody holds old edge bytes in a buffer, nobody else changes the file; the
 * one that does is alone behind the gate `edges`, all other changes are there together. The length is part of that:
 * an unaligned write near the end makes the file longer for a moment.
 * The file never grows by ftruncate except in truncate itself, for that could cut off what another thread has just
 * appended. Called through file.h; never retries an error, never truncates on open.
 */
#define _GNU_SOURCE 1

#include "storage/file_posix.h"

#include <fcntl.h>
#include <limits.h>
#include <linux/falloc.h>
#include <linux/fs.h>
#include <pthread.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/bytes.h"
#include "base/memory.h"
#include "storage/file_lock.h"
#include "storage/gate.h"
#include "storage/vector.h"

#define BOUNCE_SIZE (UINT64_C(1) << 20)
#define ALIGNMENT_DEFAULT 4096u
#define ALIGNMENT_LEAST 512u
#define STUCK_MAX 8u /* reads that end within a sector before the file's end */

_Static_assert(sizeof(off_t) == 8, "host offsets have 64 bits");

struct file_posix {
    struct file file;
    int fd;
    struct file_identity identity;
    bool direct; /* O_DIRECT: only aligned requests reach the kernel */
    bool block_device;
    uint32_t memory_alignment;                                                   /* what O_DIRECT asks of addresses */
    unsigned locks;                                                              /* byte locks held, for file_lock_change */
    struct gate edges;                                                           /* see above */
    _Atomic bool lacks_zero_range, lacks_punch, lacks_allocate, lacks_nowait[2]; /* the filesystem has said so */
    _Atomic int sync_failed;                                                     /* the first failure of a buffered fdatasync, for ever */
};

static struct file_posix *posix_of(struct file *file) { return (struct file_posix *) file; }

/* ---- the gate ---- */

static bool aligned(const struct file_posix *posix, uint64_t offset, uint64_t length) {
    return ((offset | length) & (posix->file.alignment - 1)) == 0;
}

static void edges_enter(struct file_posix *posix, bool alone) {
    if (posix->direct) gate_enter(&posix->edges, alone);
}

static void edges_leave(struct file_posix *posix) {
    if (posix->direct) gate_leave(&posix->edges);
}

/* ---- whole vectors, as they are ---- */

/* Cheaper by the copying in of the vector. */
static ssize_t transfer_one(int fd, bool write, uint64_t offset, const struct iovec *one) {
    if (write) return pwrite(fd, one->iov_base, one->iov_len, (off_t) offset);
    return pread(fd, one->iov_base, one->iov_len, (off_t) offset);
}

/* One system call's worth of the vector: the rest of a begun entry, or as many whole ones as the kernel takes. */
static ssize_t transfer(int fd, bool write, uint64_t offset, const struct vector_cursor *cursor) {
    const struct iovec rest = vector_piece(cursor);
    const struct iovec *vector = cursor->skip ? &rest : cursor->next;
    const int count = cursor->skip ? 1 : cursor->count < IOV_MAX ? cursor->count : IOV_MAX;
    ssize_t moved;
    do
        moved = count == 1 ? transfer_one(fd, write, offset, vector)
                : write    ? pwritev(fd, vector, count, (off_t) offset)
                           : preadv(fd, vector, count, (off_t) offset);
    while (moved < 0 && errno == EINTR);
    return moved < 0 ? -errno : moved;
}

static int length_now(const struct file_posix *posix, uint64_t *length) {
    struct stat status;
    off_t end = -1;
    if (posix->block_device) end = lseek(posix->fd, 0, SEEK_END);
    else if (fstat(posix->fd, &status) == 0) end = status.st_size;
    if (end < 0) return -errno;
    *length = (uint64_t) end;
    return 0;
}

/* An O_DIRECT read moved *step bytes, which is not aligned. 1: the file ends there. 0: a fault stopped it, or the file has grown
 * since; *step goes back to an aligned end, so that the next read goes on from there or meets the fault. */
static int ends_within(const struct file_posix *posix, uint64_t offset, size_t *step) {
    uint64_t length = 0;
    const int result = length_now(posix, &length);
    if (result < 0) return result;
    if (offset + *step >= length) return 1;
    *step = round_down_u64(*step, posix->file.alignment);
    return 0;
}

/* Reads all that is left of a vector. */
static int read_all(const struct file_posix *posix, uint64_t offset, struct vector_cursor cursor) {
    for (unsigned stuck = 0; cursor.count > 0;) {
        const ssize_t moved = transfer(posix->fd, false, offset, &cursor);
        if (moved < 0) return (int) moved;
        size_t step = (size_t) moved;
        const int ended = step == 0 ? 1 : aligned(posix, 0, step) ? 0 : ends_within(posix, offset, &step);
        if (ended < 0) return ended;
        if (step == 0 && !ended && ++stuck > STUCK_MAX) return -EIO;
        vector_skip(&cursor, step);
        if (ended) vector_clear(&cursor); /* past the end: zeroes */
        offset += step;
    }
    return 0;
}

/* Writes all that is left of a vector. */
static int write_all(const struct file_posix *posix, uint64_t offset, struct vector_cursor cursor) {
    while (cursor.count > 0) {
        const ssize_t moved = transfer(posix->fd, true, offset, &cursor);
        if (moved < 0) return (int) moved;
        const size_t step = round_down_u64((size_t) moved, posix->file.alignment);
        if (step == 0) return -EIO;
        vector_skip(&cursor, step);
        offset += step;
    }
    return 0;
}

/* Whether O_DIRECT takes the vector's memory as it is. */
static bool memory_fits(const struct file_posix *posix, const struct iovec *vector, int count) {
    if (!posix->direct) return true;
    for (int i = 0; i < count; i++)
        if (((uintptr_t) vector[i].iov_base & (posix->memory_alignment - 1)) != 0 || !aligned(posix, 0, vector[i].iov_len)) return false;
    return true;
}

/* ---- through a bounce buffer ---- */

struct bounce {
    uint8_t *bytes;
    uint64_t size;       /* of the buffer */
    uint64_t start, end; /* the request, widened to aligned ends */
};

static int bounce_init(const struct file_posix *posix, struct bounce *bounce, uint64_t offset, uint64_t length) {
    bounce->start = round_down_u64(offset, posix->file.alignment);
    bounce->end = round_up_u64(offset + length, posix->file.alignment);
    bounce->size = min_u64(bounce->end - bounce->start, BOUNCE_SIZE);
    bounce->bytes = memory_aligned(bounce->size);
    return bounce->bytes ? 0 : -ENOMEM;
}

static int read_block(const struct file_posix *posix, uint64_t offset, uint8_t *bytes, uint64_t length) {
    return read_all(posix, offset, vector_start(&(struct iovec){bytes, length}, 1));
}

static int read_bounced(const struct file_posix *posix, uint64_t offset, const struct iovec *vector, int count, uint64_t length) {
    struct vector_cursor cursor = vector_start(vector, count);
    struct bounce bounce;
    int result = bounce_init(posix, &bounce, offset, length);
    for (uint64_t at = bounce.start, step; at < bounce.end && result == 0; at += step) {
        step = min_u64(bounce.size, bounce.end - at);
        result = read_block(posix, at, bounce.bytes, step);
        const uint64_t from = max_u64(at, offset), to = min_u64(at + step, offset + length);
        if (result == 0) vector_scatter(&cursor, bounce.bytes + (from - at), to - from);
    }
    memory_free(bounce.bytes);
    return result;
}

/* Fills the buffer's first and last sector from the file where [from, to) leaves some of [at, at + step) uncovered. */
static int read_edges(const struct file_posix *posix, uint8_t *bytes, uint64_t at, uint64_t step, uint64_t from, uint64_t to) {
    const uint64_t sector = posix->file.alignment, last = step - sector;
    int result = 0;
    if (from > at) result = read_block(posix, at, bytes, sector);
    if (to < at + step && result == 0 && (last > 0 || from == at)) result = read_block(posix, at + last, bytes + last, sector);
    return result;
}

static int write_bounced(const struct file_posix *posix, uint64_t offset, const struct iovec *vector, int count, uint64_t length) {
    struct vector_cursor cursor = vector_start(vector, count);
    struct bounce bounce;
    int result = bounce_init(posix, &bounce, offset, length);
    for (uint64_t at = bounce.start, step; at < bounce.end && result == 0; at += step) {
        step = min_u64(bounce.size, bounce.end - at);
        const uint64_t from = max_u64(at, offset), to = min_u64(at + step, offset + length);
        result = read_edges(posix, bounce.bytes, at, step, from, to);
        if (result < 0) break;
        vector_gather(&cursor, bounce.bytes + (from - at), to - from);
        result = write_all(posix, at, vector_start(&(struct iovec){bounce.bytes, step}, 1));
    }
    memory_free(bounce.bytes);
    return result;
}

/* ---- operations ---- */

static int set_length(const struct file_posix *posix, uint64_t length) {
    int result;
    do result = ftruncate(posix->fd, (off_t) length);
    while (result < 0 && errno == EINTR);
    return result < 0 ? -errno : 0;
}

/* Read, modify, write; and cut off what the widened write has put past the end that the file should have. */
static int write_unaligned(struct file_posix *posix, uint64_t offset, const struct iovec *vector, int count, uint64_t length) {
    uint64_t before = 0, after = 0;
    edges_enter(posix, true);
    int result = length_now(posix, &before);
    if (result == 0) {
        result = write_bounced(posix, offset, vector, count, length);
        const uint64_t end = max_u64(before, offset + length);
        int cut = length_now(posix, &after);
        if (cut == 0 && after > end) cut = set_length(posix, end);
        if (result == 0) result = cut;
    }
    edges_leave(posix);
    return result;
}

static int posix_readv(struct file *file, uint64_t offset, const struct iovec *vector, int count) {
    const struct file_posix *posix = posix_of(file);
    uint64_t length;
    if (!posix->direct) return read_all(posix, offset, vector_start(vector, count));
    if (!vector_total(vector, count, &length)) return -EINVAL;
    if (aligned(posix, offset, length) && memory_fits(posix, vector, count)) return read_all(posix, offset, vector_start(vector, count));
    return read_bounced(posix, offset, vector, count, length);
}

static int posix_writev(struct file *file, uint64_t offset, const struct iovec *vector, int count) {
    struct file_posix *posix = posix_of(file);
    uint64_t length;
    if (!posix->direct) return write_all(posix, offset, vector_start(vector, count));
    if (!vector_total(vector, count, &length)) return -EINVAL;
    if (!aligned(posix, offset, length)) return write_unaligned(posix, offset, vector, count, length);
    edges_enter(posix, false);
    const int result = memory_fits(posix, vector, count) ? write_all(posix, offset, vector_start(vector, count))
                                                         : write_bounced(posix, offset, vector, count, length);
    edges_leave(posix);
    return result;
}

/* One fallocate. -ENOTSUP where the filesystem cannot; *lacks remembers it when that holds for every range. */
static int reserve(const struct file_posix *posix, int mode, uint64_t offset, uint64_t length, _Atomic bool *lacks) {
    if (atomic_load_explicit(lacks, memory_order_relaxed)) return -ENOTSUP;
    int result;
    do result = fallocate(posix->fd, mode, (off_t) offset, (off_t) length);
    while (result < 0 && errno == EINTR);
    if (result == 0) return 0;
    if (errno == EINVAL) return -ENOTSUP; /* not for this range: an unaligned one on a block device */
    if (errno != EOPNOTSUPP && errno != ENOSYS) return -errno;
    atomic_store_explicit(lacks, true, memory_order_relaxed);
    return -ENOTSUP;
}

static int punch(struct file_posix *posix, uint64_t offset, uint64_t length) {
    return reserve(posix, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, offset, length, &posix->lacks_punch);
}

/* Zeroes the range and gives its space back. Grows first, by the last byte, whose block the hole then takes in too. */
static int zero_unmapped(struct file_posix *posix, uint64_t offset, uint64_t length) {
    uint64_t now = 0;
    int result = length_now(posix, &now);
    if (result == 0 && now < offset + length) result = reserve(posix, 0, offset + length - 1, 1, &posix->lacks_allocate);
    return result == 0 ? punch(posix, offset, length) : result;
}

/* Zeroes the range and keeps its space; a hole that is filled again where there is no ZERO_RANGE (tmpfs). */
static int zero_allocated(struct file_posix *posix, uint64_t offset, uint64_t length) {
    int result = reserve(posix, FALLOC_FL_ZERO_RANGE, offset, length, &posix->lacks_zero_range);
    if (result != -ENOTSUP || atomic_load_explicit(&posix->lacks_allocate, memory_order_relaxed)) return result;
    result = punch(posix, offset, length);
    return result == 0 ? reserve(posix, 0, offset, length, &posix->lacks_allocate) : result;
}

/* Zeroes by writing, in pieces that end at aligned offsets. */
static int write_zeroes(struct file *file, uint64_t offset, uint64_t length) {
    union {
        const uint8_t *shared;
        void *base;
    } view = {.shared = memory_zeroes()}; /* iovec has no const; writev never stores through it */
    int result = 0;
    for (uint64_t step; length > 0 && result == 0; offset += step, length -= step) {
        step = min_u64(length, MEMORY_ZEROES_SIZE - offset % MEMORY_ZEROES_SIZE);
        result = posix_writev(file, offset, &(struct iovec){view.base, step}, 1);
    }
    return result;
}

static int posix_zero(struct file *file, uint64_t offset, uint64_t length, unsigned mode) {
    struct file_posix *posix = posix_of(file);
    int result = -ENOTSUP;
    edges_enter(posix, !aligned(posix, offset, length));
    if (mode & FILE_ZERO_UNMAP) result = zero_unmapped(posix, offset, length);
    if (result == -ENOTSUP) result = zero_allocated(posix, offset, length);
    edges_leave(posix);
    return result == -ENOTSUP && !(mode & FILE_ZERO_NO_FALLBACK) ? write_zeroes(file, offset, length) : result;
}

static int posix_discard(struct file *file, uint64_t offset, uint64_t length) {
    struct file_posix *posix = posix_of(file);
    edges_enter(posix, !aligned(posix, offset, length));
    const int result = punch(posix, offset, length);
    edges_leave(posix);
    return result;
}

static int posix_allocate(struct file *file, uint64_t offset, uint64_t length) {
    struct file_posix *posix = posix_of(file);
    edges_enter(posix, !aligned(posix, offset, length));
    const int result = reserve(posix, 0, offset, length, &posix->lacks_allocate);
    edges_leave(posix);
    return result;
}

static int posix_truncate(struct file *file, uint64_t length) {
    struct file_posix *posix = posix_of(file);
    edges_enter(posix, !aligned(posix, 0, length));
    const int result = set_length(posix, length);
    edges_leave(posix);
    return result;
}

/* Once a buffered fdatasync has failed, the kernel may have dropped the pages: no later success can be believed. */
int file_posix_synced(struct file *file, int result) {
    struct file_posix *posix = posix_of(file);
    const int failed = atomic_load(&posix->sync_failed);
    if (failed < 0) return failed;
    if (result < 0 && !posix->direct) atomic_store(&posix->sync_failed, result);
    return result;
}

static int posix_sync(struct file *file) {
    int result = file_posix_synced(file, 0);
    if (result < 0) return result;
    do result = fdatasync(posix_of(file)->fd);
    while (result < 0 && errno == EINTR);
    return file_posix_synced(file, result < 0 ? -errno : 0);
}

static int posix_length(struct file *file, uint64_t *length) {
    struct file_posix *posix = posix_of(file);
    edges_enter(posix, false);
    const int result = length_now(posix, length);
    edges_leave(posix);
    return result;
}

static int posix_lock(struct file *file, enum file_use from, enum file_use to, struct error *error) {
    struct file_posix *posix = posix_of(file);
    (void) from;
    return file_lock_change(posix->fd, &posix->locks, to, file->name, error);
}

static void posix_destroy(struct file *file) {
    struct file_posix *posix = posix_of(file);
    if (posix->fd >= 0) close(posix->fd);
    gate_destroy(&posix->edges);
    memory_free(posix);
}

static const struct file_ops posix_ops = {
    .kind = "posix",
    .readv = posix_readv,
    .writev = posix_writev,
    .zero = posix_zero,
    .discard = posix_discard,
    .allocate = posix_allocate,
    .truncate = posix_truncate,
    .sync = posix_sync,
    .length = posix_length,
    .lock = posix_lock,
    .destroy = posix_destroy,
};

/* ---- for rings ---- */

int file_posix_descriptor(const struct file *file) { return file->ops == &posix_ops ? ((const struct file_posix *) file)->fd : -1; }

struct file_identity file_posix_identify(const char *path) {
    struct stat status;
    if (stat(path, &status) < 0) return (struct file_identity){0, 0};
    return (struct file_identity){.device = status.st_dev, .inode = status.st_ino};
}

bool file_posix_has_identity(const struct file *file, struct file_identity identity) {
    if (file_posix_descriptor(file) < 0 || identity.inode == 0) return false;
    const struct file_posix *posix = (const struct file_posix *) file;
    return posix->identity.device == identity.device && posix->identity.inode == identity.inode;
}

bool file_posix_is_at(const struct file *file, const char *path) { return file_posix_has_identity(file, file_posix_identify(path)); }

struct gate *file_posix_gate(struct file *file) {
    return posix_of(file)->direct ? &posix_of(file)->edges : NULL;
}

bool file_posix_takes(const struct file *file, uint64_t offset, const struct iovec *vector, int count) {
    const struct file_posix *posix = (const struct file_posix *) file;
    return aligned(posix, offset, 0) && memory_fits(posix, vector, count);
}

bool file_posix_at_once(struct file *file, bool write, uint64_t offset, const struct iovec *vector, int count, uint64_t length) {
    struct file_posix *posix = posix_of(file);
    if (posix->direct || atomic_load_explicit(&posix->lacks_nowait[write], memory_order_relaxed)) return false;
    const ssize_t moved = write ? pwritev2(posix->fd, vector, count, (off_t) offset, RWF_NOWAIT)
                                : preadv2(posix->fd, vector, count, (off_t) offset, RWF_NOWAIT);
    if (moved < 0 && (errno == EOPNOTSUPP || errno == ENOSYS))
        atomic_store_explicit(&posix->lacks_nowait[write], true, memory_order_relaxed);
    return moved >= 0 && (uint64_t) moved == length;
}

int file_posix_rest(struct file *file, bool write, uint64_t offset, const struct iovec *vector, int count, uint64_t moved) {
    struct vector_cursor cursor = vector_start(vector, count);
    moved = round_down_u64(moved, file->alignment);
    vector_skip(&cursor, moved);
    return write ? write_all(posix_of(file), offset + moved, cursor) : read_all(posix_of(file), offset + moved, cursor);
}

/* ---- opening ---- */

/* An alignment that we can work with. */
static uint32_t usable(uint64_t alignment) {
    if (!is_power_of_two_u64(alignment) || alignment > BOUNCE_SIZE) return ALIGNMENT_DEFAULT;
    return (uint32_t) max_u64(alignment, ALIGNMENT_LEAST);
}

/* Asks the kernel. False where it does not know. */
static bool ask_alignment(struct file_posix *posix) {
#ifdef STATX_DIOALIGN
    struct statx status;
    if (statx(posix->fd, "", AT_EMPTY_PATH, STATX_DIOALIGN, &status) == 0 && (status.stx_mask & STATX_DIOALIGN) &&
        status.stx_dio_offset_align > 0 && status.stx_dio_mem_align <= MEMORY_ALIGNMENT) {
        posix->file.alignment = usable(status.stx_dio_offset_align);
        posix->memory_alignment = is_power_of_two_u64(status.stx_dio_mem_align) ? status.stx_dio_mem_align : ALIGNMENT_DEFAULT;
        return true;
    }
#endif
    int sector = 0;
    if (!posix->block_device || ioctl(posix->fd, BLKSSZGET, &sector) < 0 || sector <= 0) return false;
    posix->file.alignment = posix->memory_alignment = usable((uint64_t) sector);
    return true;
}

/* Whether a read of `length` bytes at and into a multiple of `length` works. A file that is too short says nothing. */
static bool probe_read(int fd, uint8_t *bytes, size_t length) {
    return pread(fd, bytes + length, length, (off_t) length) == (ssize_t) length;
}

/* 512 where the kernel lets us read at 512, else the default. */
static int probe_alignment(struct file_posix *posix) {
    uint8_t *bytes = memory_aligned(2 * ALIGNMENT_LEAST);
    if (!bytes) return -ENOMEM;
    posix->file.alignment = probe_read(posix->fd, bytes, ALIGNMENT_LEAST) ? ALIGNMENT_LEAST : ALIGNMENT_DEFAULT;
    posix->memory_alignment = posix->file.alignment;
    memory_free(bytes);
    return 0;
}

static int check_kind(const char *path, mode_t mode, struct error *error) {
    if (S_ISREG(mode) || S_ISBLK(mode)) return 0;
    const char *kind = S_ISDIR(mode) ? "a directory" : S_ISFIFO(mode) ? "a FIFO" : S_ISSOCK(mode) ? "a socket" : "a character device";
    const int code = S_ISDIR(mode) ? -EISDIR : -EINVAL;
    return error_set(error, code, "cannot open '%s': it is %s, not a file or block device", path, kind);
}

/* Opens and looks at what it is; first by name, for opening alone can block (FIFO) or have effects (tape). */
static int open_checked(struct file_posix *posix, const char *path, unsigned flags, struct error *error) {
    const int access = flags & FILE_POSIX_WRITE ? O_RDWR : O_RDONLY;
    const int create = flags & FILE_POSIX_CREATE ? O_CREAT : 0, direct = flags & FILE_POSIX_DIRECT ? O_DIRECT : 0;
    struct stat status;
    if (stat(path, &status) == 0 && check_kind(path, status.st_mode, error) < 0) return error->code;
    posix->fd = open(path, access | create | direct | O_CLOEXEC | O_NOCTTY, 0644);
    if (posix->fd < 0 && errno == EINVAL && direct)
        return error_set(error, -EINVAL, "cannot open '%s' with O_DIRECT: its filesystem has no direct I/O", path);
    if (posix->fd < 0 || fstat(posix->fd, &status) < 0) {
        const int number = errno;
        return error_set(error, -number, "cannot open '%s': %s", path, strerror(number));
    }
    posix->block_device = S_ISBLK(status.st_mode);
    posix->identity = (struct file_identity){.device = status.st_dev, .inode = status.st_ino};
    return check_kind(path, status.st_mode, error);
}

static int set_up(struct file_posix *posix, const char *path, unsigned flags, struct error *error) {
    int result = open_checked(posix, path, flags, error);
    if (result < 0) return result;
    posix->direct = flags & FILE_POSIX_DIRECT;
    posix->file.read_only = !(flags & FILE_POSIX_WRITE);
    posix->file.no_sync = flags & FILE_POSIX_NO_SYNC;
    posix->file.grows_as_zeroes = !posix->block_device;
    posix->file.zero_after_discard = true; /* a hole reads as zeroes; what cannot make one answers -ENOTSUP */
    if (posix->direct && !ask_alignment(posix)) result = probe_alignment(posix);
    return result == 0 ? 0 : error_set(error, result, "cannot open '%s': %s", path, strerror(-result));
}

int file_posix_open(const char *path, unsigned flags, struct file **file, struct error *error) {
    struct file_posix *posix = memory_zeroed(sizeof *posix);
    if (!posix || file_init(&posix->file, &posix_ops, path) < 0) {
        memory_free(posix);
        return error_set(error, -ENOMEM, "cannot open '%s': %s", path, strerror(ENOMEM));
    }
    gate_init(&posix->edges);
    posix->fd = -1;
    const int result = set_up(posix, path, flags, error);
    if (result < 0) file_release(&posix->file);
    else *file = &posix->file;
    return result;
}
