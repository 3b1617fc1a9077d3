/* SPDX-License-Identifier: MIT
 *
 * Backing files and external data files are named relative to the directory of the image that names them, so that a
 * directory with a whole chain can be moved. Pure. Called by chain, data_file and create.
 */
#include "image/names.h"

#include <string.h>

#include "base/memory.h"

char *relative_path(const char *image_path, const char *name) {
    const char *slash = strrchr(image_path, '/');
    if (name[0] == '/' || slash == NULL) return memory_text(name, strlen(name));
    const size_t directory = (size_t) (slash - image_path) + 1, length = strlen(name);
    char *path = memory_zeroed(directory + length + 1);
    if (path == NULL) return NULL;
    memcpy(path, image_path, directory);
    memcpy(path + directory, name, length);
    return path;
}
