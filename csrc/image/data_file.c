/* SPDX-License-Identifier: MIT
 *
 * Guest bytes of such an image lie in a file of their own, each at its guest offset, so nothing there is counted or looked for. The name
 * is relative to the directory of the image that names it, as a backing file's is. The file is locked as the image is. A raw one
 * alone is the whole disk, which is why such an image has no backing file. Called by chain, create and resize.
 */
#include "image/data_file.h"

#include <string.h>

#include "base/memory.h"
#include "image/names.h"
#include "storage/extent_hint.h"
#include "storage/file_posix.h"

static bool has_data_file(const struct image *image) { return image->format == IMAGE_QCOW2 && image->geometry.data_file; }

/* The path of the data file; memory of memory_*. */
static int find_path(const struct image *image, const struct image_options *options, char **path, struct error *error) {
    const struct header_extension *extension = header_find_extension(&image->header, FORMAT_EXTENSION_DATA_FILE);
    if (options->data_file != NULL) {
        *path = memory_text(options->data_file, strlen(options->data_file));
    } else if (extension == NULL || extension->length == 0) {
        return error_set(error, -EINVAL, "'%s' has an external data file, but does not say its name: say data_file", image->file->name);
    } else {
        char *name = memory_text((const char *) extension->data, extension->length);
        *path = name != NULL ? relative_path(image->file->name, name) : NULL;
        memory_free(name);
    }
    return *path != NULL ? 0 : error_set(error, -ENOMEM, "no memory to open a data file");
}

static int open_at(struct image *image, const char *path, const struct image_options *options, struct error *error) {
    struct file *file = NULL;
    if (file_posix_is_at(image->file, path)) return error_set(error, -EINVAL, "it is the image itself");
    int result = file_posix_open(path, image_file_flags(options), &file, error);
    if (result < 0) return result;
    result = file_change_use(file, FILE_USE_NOTHING, image->use, error);
    if (result < 0) {
        file_release(file);
        return result;
    }
    image->data = image->flush.data = file;
    return 0;
}

int data_file_open(struct image *image, const struct image_options *options, struct error *error) {
    char *path = NULL;
    if (!has_data_file(image)) {
        if (options->data_file == NULL) return 0;
        return error_set(error, -EINVAL, "data_file is given, but '%s' has no external data file", image->file->name);
    }
    image->data = NULL;
    if (!options->open_data_file) return 0;
    int result = find_path(image, options, &path, error);
    if (result < 0) return result;
    result = open_at(image, path, options, error);
    if (result < 0) error_prefix(error, "data file '%s' of '%s'", path, image->file->name);
    memory_free(path);
    return result;
}

int data_file_create(const char *path, uint64_t size, uint64_t hint, unsigned flags, struct file **file, struct error *error) {
    int result = file_posix_open(path, FILE_POSIX_WRITE | FILE_POSIX_CREATE | flags, file, error);
    if (result < 0) return error_prefix(error, "data_file");
    result = file_change_use(*file, FILE_USE_NOTHING, FILE_USE_WRITE, error);
    if (result == 0) {
        struct error ignored = {.code = 0};
        result = file_truncate(*file, 0, error);
        if (result == 0 && hint > 0) result = extent_hint_set(*file, hint, error);
        if (result == 0) result = file_truncate(*file, size, error);
        file_change_use(*file, FILE_USE_WRITE, FILE_USE_NOTHING, &ignored);
    }
    if (result == 0) return 0;
    file_release(*file);
    *file = NULL;
    return error_prefix(error, "data_file '%s'", path);
}

int data_file_resize(struct image *image, uint64_t size, struct error *error) {
    if (!has_data_file(image) || image->data == NULL) return 0;
    return file_truncate(image->data, size, error);
}
