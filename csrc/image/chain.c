/* SPDX-License-Identifier: MIT
 *
 * A chain is opened from the top down in a loop, one level at a time, so its depth costs time but no stack.
 * Backing files are opened for reading only, in the format that the image above records; without one they are probed.
 * A file that is in the chain already (same device and inode) is a loop. Called by the binding and create.
 */
#include "image/chain.h"

#include <string.h>

#include "base/memory.h"
#include "image/data_file.h"
#include "image/names.h"
#include "storage/file_posix.h"

/* One level, in the file at `path`. */
static int open_path(const char *path, const struct image_options *options, struct image **image, struct error *error) {
    struct file *file = NULL;
    *image = NULL;
    int result = file_posix_open(path, image_file_flags(options), &file, error);
    if (result < 0) return result;
    result = image_open_level(file, options, image, error);
    file_release(file);
    return result;
}

bool chain_has_file(const struct image *top, const char *path) {
    const struct file_identity identity = file_posix_identify(path);
    for (const struct image *image = top; image != NULL; image = image->backing) {
        if (file_posix_has_identity(image->file, identity)) return true;
    }
    return false;
}

/* The format that the image records for its backing file. */
static int recorded_format(const struct image *image, enum image_open_format *format, struct error *error) {
    const struct header_extension *extension = header_find_extension(&image->header, FORMAT_EXTENSION_BACKING_FORMAT);
    *format = IMAGE_OPEN_PROBE;
    if (extension == NULL) return 0;
    *format = IMAGE_OPEN_RAW;
    if (extension->length == 3 && memcmp(extension->data, "raw", 3) == 0) return 0;
    *format = IMAGE_OPEN_QCOW2;
    if (extension->length == 5 && memcmp(extension->data, "qcow2", 5) == 0) return 0;
    return error_set(error, -ENOTSUP, "format '%.*s' of the backing file of '%s' is not known: qcow2 and raw are", (int) extension->length,
                     (const char *) extension->data, image->file->name);
}

/* Says where in the chain something is wrong. */
static void prefix_place(const struct image *top, const struct image *above, struct error *error) {
    unsigned depth = 1;
    for (const struct image *image = top; image != above; image = image->backing) depth++;
    if (depth == 1) error_prefix(error, "backing file of '%s'", above->file->name);
    else error_prefix(error, "backing file of '%s', which is %u deep below '%s'", above->file->name, depth - 1, top->file->name);
}

static int open_below(struct image *top, struct image *above, const struct image_options *options, struct error *error) {
    struct image_options level = *options;
    level.snapshot = NULL;
    int result = recorded_format(above, &level.format, error);
    if (result < 0) return result;
    level.read_only = true;
    level.data_file = NULL;
    level.l2_cache_size = level.l2_cache_entry_size = level.refcount_cache_size = 0; /* those asked for are the top's */
    char *path = relative_path(above->file->name, above->header.backing_file);
    if (path == NULL) return error_set(error, -ENOMEM, "no memory to open a backing file");
    if (chain_has_file(top, path)) {
        result = error_set(error, ERROR_CORRUPT, "the backing chain of '%s' is a loop: '%s' is in it twice", top->file->name, path);
    }
    if (result == 0) result = open_path(path, &level, &above->backing, error);
    if (result == 0) result = data_file_open(above->backing, &level, error);
    if (result < 0) prefix_place(top, above, error);
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

/* Opens what belongs to the top. One that is open but lacks something is closed; the first sentence stays. */
static int finish(struct image **image, const struct image_options *options, int result, struct error *error) {
    if (result == 0) result = data_file_open(*image, options, error);
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
