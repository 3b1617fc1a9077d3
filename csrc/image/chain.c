/* SPDX-License-Identifier: MIT
 *
 * A chain is opened from the top down in a loop, one level at a time, so its depth costs time but no stack.
 * Backing files are opened for reading only, in the format that the image above records; without one they are probed.
 * A file that is in the chain already (same device and inode) is a loop. Called by the binding and create.
 */
#include "image/chain.h"

#include <string.h>
#include <sys/stat.h>

#include "base/memory.h"
#include "storage/file_posix.h"

/* One level, in the file at `path`. */
static int open_path(const char *path, const struct image_options *options, struct image **image, struct error *error) {
    struct file *file = NULL;
    const unsigned flags = (options->read_only ? 0 : FILE_POSIX_WRITE) | (options->direct ? FILE_POSIX_DIRECT : 0) |
                           (options->no_sync ? FILE_POSIX_NO_SYNC : 0);
    *image = NULL;
    int result = file_posix_open(path, flags, &file, error);
    if (result < 0) return result;
    result = image_open_level(file, options, image, error);
    file_release(file);
    return result;
}

char *backing_path(const char *image_path, const char *name) {
    const char *slash = strrchr(image_path, '/');
    if (name[0] == '/' || slash == NULL) return memory_text(name, strlen(name));
    const size_t directory = (size_t) (slash - image_path) + 1, length = strlen(name);
    char *path = memory_zeroed(directory + length + 1);
    if (path == NULL) return NULL;
    memcpy(path, image_path, directory);
    memcpy(path + directory, name, length);
    return path;
}

static bool same_file(const char *a, const char *b) {
    struct stat left, right;
    return stat(a, &left) == 0 && stat(b, &right) == 0 && left.st_dev == right.st_dev && left.st_ino == right.st_ino;
}

static int refuse_loop(const struct image *top, const char *path, struct error *error) {
    for (const struct image *image = top; image != NULL; image = image->backing) {
        if (same_file(image->file->name, path)) {
            return error_set(error, ERROR_CORRUPT, "the backing chain of '%s' is a loop: '%s' is in it twice", top->file->name, path);
        }
    }
    return 0;
}

static enum image_open_format recorded_format(const struct image *image) {
    const struct header_extension *extension = header_find_extension(&image->header, FORMAT_EXTENSION_BACKING_FORMAT);
    if (extension == NULL) return IMAGE_OPEN_PROBE;
    if (extension->length == 3 && memcmp(extension->data, "raw", 3) == 0) return IMAGE_OPEN_RAW;
    return IMAGE_OPEN_QCOW2; /* what is neither is found out, and named, when its header is read */
}

static int open_below(struct image *top, struct image *above, const struct image_options *options, struct error *error) {
    struct image_options level = *options;
    level.format = recorded_format(above);
    level.read_only = true;
    char *path = backing_path(above->file->name, above->header.backing_file);
    if (path == NULL) return error_set(error, -ENOMEM, "no memory to open a backing file");
    int result = refuse_loop(top, path, error);
    if (result == 0) result = open_path(path, &level, &above->backing, error);
    if (result < 0) error_prefix(error, "backing file of '%s'", above->file->name);
    memory_free(path);
    return result;
}

static int open_chain(struct image *top, const struct image_options *options, struct error *error) {
    for (struct image *image = top; image->format == IMAGE_QCOW2 && image->header.backing_file != NULL; image = image->backing) {
        const int result = open_below(top, image, options, error);
        if (result < 0) return result;
    }
    return 0;
}

/* Closes a top whose chain could not be opened; the first sentence stays. */
static int finish(struct image **image, const struct image_options *options, int result, struct error *error) {
    if (result == 0 && options->open_backing) result = open_chain(*image, options, error);
    if (result == 0) return 0;
    struct error ignored = {.code = 0};
    image_close(*image, &ignored);
    *image = NULL;
    return result;
}

int image_open(struct file *file, const struct image_options *options, struct image **image, struct error *error) {
    return finish(image, options, image_open_level(file, options, image, error), error);
}

int image_open_path(const char *path, const struct image_options *options, struct image **image, struct error *error) {
    return finish(image, options, open_path(path, options, image, error), error);
}
