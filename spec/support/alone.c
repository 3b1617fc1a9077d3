/* SPDX-License-Identifier: MIT
 *
 * Preloaded beside a sanitizer's library, so that the programs which a spec starts run without both: qemu-img hangs with
 * AddressSanitizer preloaded. The interpreter itself has loaded them by then. QCOW2_PRELOAD keeps what was there, for those
 * children that are interpreters of our own.
 */
#include <stdlib.h>

__attribute__((constructor)) static void let_children_be(void) {
    const char *preload = getenv("LD_PRELOAD");
    if (preload != NULL) setenv("QCOW2_PRELOAD", preload, 1);
    unsetenv("LD_PRELOAD");
}
