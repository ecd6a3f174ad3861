/*
 * Visibility, attributes and the version of the library.
 *
 * Every symbol is hidden unless it is declared with PR_API and listed in the library's map file.
 */
#ifndef POSTROOM_EXPORT_H
#define POSTROOM_EXPORT_H

#define PR_VERSION_MAJOR 0
#define PR_VERSION_MINOR 1
#define PR_VERSION_PATCH 0
#define PR_VERSION_TEXT  "0.1.0"

#if defined(__GNUC__)
#define PR_API            __attribute__((visibility("default")))
#define PR_MUST_CHECK     __attribute__((warn_unused_result))
#define PR_PRINTF(fmt, a) __attribute__((format(printf, fmt, a)))
#else
#define PR_API
#define PR_MUST_CHECK
#define PR_PRINTF(fmt, a)
#endif

#ifdef __cplusplus
#define PR_BEGIN_DECLS extern "C" {
#define PR_END_DECLS   }
#else
#define PR_BEGIN_DECLS
#define PR_END_DECLS
#endif

#endif
