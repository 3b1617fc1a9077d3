/* SPDX-License-Identifier: MIT
 *
 * An error is a code and a sentence.
 *
 * Functions return 0 or a negative errno. Whoever can explain a failure takes a `struct error *`
 * as its last parameter (never NULL) and writes one sentence there, in the specification's terms and
 * with offsets; whoever is below that only returns the code. The first sentence wins, because
 * it was written nearest to the fault: a caller that only passes an error on calls nothing here.
 * Contradictions in an image's metadata all have one code, ERROR_CORRUPT.
 */
#ifndef QCOW2_BASE_ERROR_H
#define QCOW2_BASE_ERROR_H

#include <errno.h>

#define ERROR_CORRUPT (-EUCLEAN) /* metadata that contradicts itself or the format */
#define ERROR_TEXT_SIZE 512

struct error {
    int code;                   /* 0, or the negative errno of the first failure */
    char text[ERROR_TEXT_SIZE]; /* one sentence, without a final full stop; "" while code is 0 */
};

/* Makes `error` hold no error. */
void error_clear(struct error *error);

/* Writes the sentence unless one is there already. Returns `code`, so that `return error_set(…)` reads well. */
int error_set(struct error *error, int code, const char *format, ...) __attribute__((format(printf, 3, 4)));

/* Puts "context: " before the sentence that is there. Returns the error's code. */
int error_prefix(struct error *error, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* The name of a negative errno as scripts see it: "ENOSPC", "ECORRUPT"; "E<number>" when it has none. */
const char *error_name(int code);

#endif
