/* SPDX-License-Identifier: MIT
 *
 * Through the kernel's FS_IOC_FSSETXATTR, which keeps what other attributes the file has. A file that has extents keeps its hint, so
 * this comes before the first byte. Called by create and data_file.
 */
#include "storage/extent_hint.h"

#include <errno.h>
#include <inttypes.h>
#include <linux/fs.h>
#include <sys/ioctl.h>

#include "storage/file_posix.h"

/* Some filesystems take the call and keep nothing: what is there afterwards counts. */
static int set(int fd, uint32_t bytes) {
    struct fsxattr attributes = {.fsx_xflags = 0};
    if (ioctl(fd, FS_IOC_FSGETXATTR, &attributes) < 0) return -errno;
    attributes.fsx_xflags |= FS_XFLAG_EXTSIZE;
    attributes.fsx_extsize = bytes;
    if (ioctl(fd, FS_IOC_FSSETXATTR, &attributes) < 0 || ioctl(fd, FS_IOC_FSGETXATTR, &attributes) < 0) return -errno;
    return attributes.fsx_extsize == bytes ? 0 : -EOPNOTSUPP;
}

int extent_hint_set(struct file *file, uint64_t bytes, struct error *error) {
    const int fd = file_posix_descriptor(file);
    const int result = fd < 0 ? -ENOTTY : bytes > UINT32_MAX ? -EINVAL : set(fd, (uint32_t) bytes);
    if (result == 0) return 0;
    if (result == -ENOTTY || result == -EOPNOTSUPP) {
        return error_set(error, -ENOTSUP, "the filesystem of '%s' has no extent size hints", file->name);
    }
    return error_set(error, result, "setting an extent size hint of %" PRIu64 " bytes for '%s': %s", bytes, file->name, error_name(result));
}
