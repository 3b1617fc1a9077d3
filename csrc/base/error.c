/* SPDX-License-Identifier: MIT
 *
 * Errors: one code and one sentence, in a struct that the caller owns.
 *
 * Invariant: text is "" exactly while code is 0. The first error_set wins; later ones only hand their own code on, so
 * the sentence that was written nearest to the fault survives. Too long a sentence is cut, never refused: nothing
 * here allocates, so that running out of memory can be told like anything else.
 * Everybody calls this; it calls nobody.
 */
#include "base/error.h"

#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

static const struct {
    int number;
    const char *name;
} names[] = {
#define NAME(number) {number, #number}
    {-ERROR_CORRUPT, "ECORRUPT"},
    NAME(E2BIG), NAME(EACCES), NAME(EAGAIN), NAME(EBADF), NAME(EBUSY), NAME(ECANCELED), NAME(EDOM), NAME(EDQUOT),
    NAME(EEXIST), NAME(EFAULT), NAME(EFBIG), NAME(EILSEQ), NAME(EINTR), NAME(EINVAL), NAME(EIO), NAME(EISDIR), NAME(ELOOP),
    NAME(EMFILE), NAME(EMSGSIZE), NAME(ENAMETOOLONG), NAME(ENFILE), NAME(ENODATA), NAME(ENODEV), NAME(ENOENT),
    NAME(ENOLCK), NAME(ENOMEDIUM), NAME(ENOMEM), NAME(ENOSPC), NAME(ENOSYS), NAME(ENOTDIR), NAME(ENOTEMPTY),
    NAME(ENOTSUP), NAME(ENOTTY), NAME(ENXIO), NAME(EOVERFLOW), NAME(EPERM), NAME(EPIPE), NAME(ERANGE), NAME(EROFS),
    NAME(ESPIPE), NAME(ESTALE), NAME(ETIMEDOUT), NAME(ETXTBSY), NAME(EXDEV),
#undef NAME
};

void error_clear(struct error *error) {
    error->code = 0;
    error->text[0] = '\0';
}

int error_set(struct error *error, int code, const char *format, ...) {
    if (error->code != 0) return code;
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(error->text, sizeof error->text, format, arguments);
    va_end(arguments);
    error->code = code;
    return code;
}

int error_prefix(struct error *error, const char *format, ...) {
    if (error->code == 0) return 0;
    char context[ERROR_TEXT_SIZE];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(context, sizeof context - 2, format, arguments);
    va_end(arguments);
    strcat(context, ": ");
    const size_t before = strlen(context);
    memmove(error->text + before, error->text, sizeof error->text - before);
    memcpy(error->text, context, before);
    error->text[sizeof error->text - 1] = '\0';
    return error->code;
}

const char *error_name(int code) {
    static _Thread_local char other[16];
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
        if (names[i].number == -code) return names[i].name;
    snprintf(other, sizeof other, "E%d", code < 0 ? -code : code);
    return other;
}
