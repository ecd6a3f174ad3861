/*
 * Reading JSON through jansson, with errors that never show the content.
 */
#ifndef PR_CORE_JSON_H
#define PR_CORE_JSON_H

#include <jansson.h>

#include <postroom/error.h>

#include "base/json_writer.h"
#include "base/memory.h"

static inline void *pr__json_decref(json_t *value)
{
    json_decref(value);
    return NULL;
}
DEFINE_AUTO(json_t, pr__json_decref);

/* CONTENT: "<what>: no valid JSON, <why> at byte N"; names that stand twice and NUL characters are
   refused. */
pr_status pr__json_load(const char *text, size_t size, const char *origin, const char *what,
                        json_t **ret_value, pr_error *err);

/* The same, but whole numbers beyond 64 bits are taken as reals; *ret_widened: there were some. */
pr_status pr__json_load_wide(const char *text, size_t size, const char *origin, const char *what,
                             bool *ret_widened, json_t **ret_value, pr_error *err);

/* Whether a real in it may have been such a number: then it does not stand for what was written. */
bool pr__json_has_wide(const json_t *value);

/* The one member of an object that has one. */
void pr__json_only_member(json_t *object, const char **ret_name, json_t **ret_value);

/* Compact text; the caller's, pr__free. NULL when out of memory. */
char *pr__json_dump(const json_t *value);

/* Write a value with our own writer; json->failed when it nests too deep. */
void pr__json_put(pr__json *json, const json_t *value);

#endif
