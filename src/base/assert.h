/*
 * pr_assert stays on in release builds. It guards only states in which going on could lose or
 * double a message; everything else is an error that is returned.
 */
#ifndef PR_BASE_ASSERT_H
#define PR_BASE_ASSERT_H

void pr__assert_failed(const char *expression, const char *file, int line)
    __attribute__((noreturn));

#define pr_assert(expression)                                                                      \
    ((expression) ? (void)0 : pr__assert_failed(#expression, __FILE__, __LINE__))

#endif
