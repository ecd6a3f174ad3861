/*
 * Headers inside of core.
 */
#ifndef PR_CORE_HEADERS_H
#define PR_CORE_HEADERS_H

#include <postroom/headers.h>

#include "base/memory.h"

DEFINE_AUTO(pr_headers, pr_headers_free);

/* Check JSON text of headers against shape and limits, without keeping it. "" is none. */
pr_status pr__headers_check(const char *json, pr_error *err);

#endif
