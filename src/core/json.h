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

/* The one member of an object that has one. */
void pr__json_only_member(json_t *object, const char **ret_name, json_t **ret_value);

/* Compact text; the caller's, pr__free. NULL when out of memory. */
char *pr__json_dump(const json_t *value);

/* Write a value with our own writer; json->failed when it nests too deep. */
void pr__json_put(pr__json *json, const json_t *value);

#endif
