/* SPDX-License-Identifier: MIT
 *
 * A real file or block device, buffered or O_DIRECT.
 *
 * Callers never align: with O_DIRECT a request that is not aligned (offset, length or memory) goes through a bounce
 * buffer, and an unaligned write reads what surrounds it first. So that such a read-modify-write loses no
 * neighbour's bytes, it holds the file's rwlock for writing, while aligned writes hold it for reading.
 */
#ifndef QCOW2_STORAGE_FILE_POSIX_H
#define QCOW2_STORAGE_FILE_POSIX_H

#include "storage/file.h"

enum file_posix_flag {
    FILE_POSIX_WRITE = 1,   /* read and write; else read only */
    FILE_POSIX_CREATE = 2,  /* make the file when it is missing */
    FILE_POSIX_DIRECT = 4,  /* O_DIRECT; -EINVAL with a sentence where the filesystem refuses */
    FILE_POSIX_NO_SYNC = 8, /* file_sync does nothing (cache=unsafe) */
};

/* Opens `path`; refuses directories, FIFOs, sockets and character devices with a sentence. Never truncates. Takes no locks. */
int file_posix_open(const char *path, unsigned flags, struct file **file, struct error *error);

#endif
