/* SPDX-License-Identifier: MIT
 *
 * Resizing in steps that a crash may interrupt anywhere: growing makes the new part zero where something would show
 * through before the header says the new size; shrinking gives clusters up first. Called by the binding.
 */
#include "image/resize.h"

#include "base/bytes.h"
#include "image/data_file.h"

#define SECTOR_SIZE 512u

static int run(struct image *image, enum request_kind kind, uint64_t offset, uint64_t length, struct error *error) {
    struct request request;
    request_start(&request, image, kind, offset, length, NULL);
    request.unmap_all = kind == REQUEST_DISCARD;
    return request_run_into(&request, error);
}

/* The rest of the last cluster may hold bytes from before, and a longer backing file would show through. */
static int clear_new_part(struct image *image, uint64_t old_size, struct error *error) {
    const uint64_t cluster_end = round_up_u64(old_size, image->geometry.cluster_size);
    const uint64_t backing_end = image->backing != NULL ? image->backing->size : 0;
    const uint64_t end = min_u64(max_u64(cluster_end, backing_end), image->size);
    return end > old_size ? run(image, REQUEST_ZERO, old_size, end - old_size, error) : 0;
}

static int resize_raw(struct image *image, uint64_t size, struct error *error) {
    if (image->read_only) return error_set(error, -EROFS, "'%s' is open for reading only", image->file->name);
    const int result = file_truncate(image->file, size, error);
    if (result == 0) image->size = size;
    return result;
}

/* From here on the header may say the image's size. */
static void publish(struct image *image) {
    pthread_mutex_lock(&image->lock);
    image->flush.size = image->header.size = image->size;
    pthread_mutex_unlock(&image->lock);
}

/* The new part could not be cleared: the old size stands. */
static void take_back(struct image *image, uint64_t old_size) {
    pthread_mutex_lock(&image->lock);
    image->size = old_size;
    pthread_mutex_unlock(&image->lock);
}

int image_resize(struct image *image, uint64_t size, struct error *error) {
    const uint64_t old_size = image->size;
    size = round_up_u64(size, SECTOR_SIZE);
    if (image->format == IMAGE_RAW) return resize_raw(image, size, error);
    if (image->geometry.version < 3 && image->header.nb_snapshots > 0) {
        return error_set(error, -ENOTSUP, "a version 2 image with snapshots cannot be resized: they do not record their size");
    }
    int result = size > old_size ? data_file_resize(image, size, error) : 0;
    if (result == 0 && size < old_size) {
        const uint64_t start = min_u64(round_up_u64(size, image->geometry.cluster_size), old_size);
        result = run(image, REQUEST_DISCARD, start, old_size - start, error);
    }
    if (result == 0) result = run(image, REQUEST_RESIZE, size, 0, error);
    if (result == 0 && size > old_size) {
        result = clear_new_part(image, old_size, error);
        if (result < 0) take_back(image, old_size);
    }
    if (result == 0) publish(image);
    if (result == 0) result = request_flush(image, error);
    return result == 0 && size < old_size ? data_file_resize(image, size, error) : result;
}
