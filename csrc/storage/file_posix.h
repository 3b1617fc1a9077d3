/* SPDX-License-Identifier: MIT
 *
 * A real file or block device, buffered or O_DIRECT.
 *
 * Callers never align: with O_DIRECT a request that is not aligned (offset, length or memory) goes through a bounce
 * buffer, and an unaligned write reads what surrounds it first. So that such a read-modify-write loses no
 * neighbour's bytes, nothing else changes the file meanwhile; aligned changes go on together.
 */
#ifndef QCOW2_STORAGE_FILE_POSIX_H
#define QCOW2_STORAGE_FILE_POSIX_H

#include <stdbool.h>

#include "storage/file.h"

enum file_posix_flag {
    FILE_POSIX_WRITE = 1,   /* read and write; else read only */
    FILE_POSIX_CREATE = 2,  /* make the file when it is missing */
    FILE_POSIX_DIRECT = 4,  /* O_DIRECT; -EINVAL with a sentence where the filesystem refuses */
    FILE_POSIX_NO_SYNC = 8, /* file_sync does nothing (cache=unsafe) */
};

/* Opens `path`; refuses directories, FIFOs, sockets and character devices with a sentence. Never truncates. Takes no locks. */
int file_posix_open(const char *path, unsigned flags, struct file **file, struct error *error);

/* ---- for rings, which have the kernel read, write and sync without the functions of file.h ---- */

/* The file's descriptor; -1 when it is of another kind. The functions below are for files that have one. */
int file_posix_descriptor(const struct file *file);

/* Whether the kernel takes these bytes as they are: always, unless O_DIRECT asks for an alignment that they do not have. */
bool file_posix_takes(const struct file *file, uint64_t offset, const struct iovec *vector, int count);

/* Reads or writes the vector, of `length` bytes, if the page cache can do so without waiting. False: it is to be done in another way,
 * as a whole. */
bool file_posix_at_once(struct file *file, bool write, uint64_t offset, const struct iovec *vector, int count, uint64_t length);

/* Goes on, within the call, where a read or write of the vector that file_posix_takes ended after `moved` bytes. */
int file_posix_rest(struct file *file, bool write, uint64_t offset, const struct iovec *vector, int count, uint64_t moved);

/* What a sync comes to that ended with `result`; remembers a failure as file_sync does. */
int file_posix_synced(struct file *file, int result);

/* Where each write has to be a guest from before its start to after its end; NULL where writes need not. */
struct gate *file_posix_gate(struct file *file);

struct file_identity { /* what a file is, whatever its path; all zero: nothing */
    uint64_t device, inode;
};

/* What lies at `path` now. */
struct file_identity file_posix_identify(const char *path);

/* Whether the file is that one. False for files of other kinds, and for nothing. */
bool file_posix_has_identity(const struct file *file, struct file_identity identity);

/* Both at once. */
bool file_posix_is_at(const struct file *file, const char *path);

#endif
