/* SPDX-License-Identifier: MIT
 *
 * An L1 table with all that hangs from it: L2 tables and data. It is read from the file, so what is in memory has to be there before.
 */
#ifndef QCOW2_IMAGE_TREE_H
#define QCOW2_IMAGE_TREE_H

#include "guest/image.h"

struct tree {
    struct image *image;
    uint64_t *l1; /* entries as on disk, host byte order; owned */
    uint64_t entries;
};

/* Reads the L1 table. To be given up with tree_clear, also after a failure. */
int tree_read(struct tree *tree, struct image *image, uint64_t l1_offset, uint64_t entries, struct error *error);

void tree_clear(struct tree *tree);

/* Visits each host cluster as often as it is referenced, L2 tables too, in runs. A visit that does not return 0 ends it. */
typedef int tree_visit(void *owner, uint64_t host_cluster, uint64_t count, struct error *error);
int tree_walk(const struct tree *tree, tree_visit *visit, void *owner, struct error *error);

/* One reference more to each. After a failure counts are as before. */
int tree_refer(const struct tree *tree, struct error *error);

/* One reference less; what nobody references any more becomes free at the next flush. */
int tree_drop(const struct tree *tree, struct error *error);

/* Sets COPIED where the refcount is 1, and clears it elsewhere, in the file; l1_offset is where the L1 table lies. */
int tree_mark_copied(struct tree *tree, uint64_t l1_offset, struct error *error);

#endif
