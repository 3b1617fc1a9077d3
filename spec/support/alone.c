/* SPDX-License-Identifier: MIT
 *
 * Preloaded beside a sanitizer's library, so that the programs which a spec starts run without both: qemu-img hangs with
 * AddressSanitizer preloaded. The interpreter itself has loaded them by then.
 */
#include <stdlib.h>

__attribute__((constructor)) static void let_children_be(void) { unsetenv("LD_PRELOAD"); }
