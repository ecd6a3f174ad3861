/*
 * Paths of fields, and where they stand in a JSON text.
 *
 * Owns: how a path is written, and how its value is found again once it is at fault.
 * Keeps: only text that jansson took before is walked, and jansson says where each value ends; no
 * content is shown.
 * Must not know: what a field should have been.
 */
#include "core/field_path.h"

#include <string.h>

#include "base/buffer.h"
#include "base/error.h"
#include "base/text.h"
#include "core/json.h"

#define ORIGIN     "contract"
#define PATH_SIZE  256
#define NAME_SHOWN 64

static void append_path(const pr__field_path *path, pr__buffer *out)
{
    if (path->outer)
        append_path(path->outer, out);
    if (!path->name)
        pr__buffer_printf(out, "[%zu]", path->index);
    else
        pr__buffer_printf(out, "%s%.*s", out->size > 0 ? "." : "", NAME_SHOWN, path->name);
}

static void path_text(const pr__field_path *path, char out[PATH_SIZE])
{
    AUTO_BUFFER text = PR_BUFFER_INIT;
    append_path(path, &text);
    const char *whole = pr__buffer_text(&text);
    pr__format(out, PATH_SIZE, "%s", whole ? whole : "?");
}

pr_status pr__field_fail(const pr__field_path *path, pr_status status, pr_error *err,
                         const char *what)
{
    char shown[PATH_SIZE];
    path_text(path, shown);
    return pr__fail(err, status, ORIGIN, "field '%s' %s", shown, what);
}

/* ---- in a text ---- */

typedef struct walk {
    const char *text;
    size_t size;
    size_t at;
} walk;

/* White space, and what stands between values. */
static void skip_between(walk *w)
{
    while (w->at < w->size && strchr(" \t\r\n,:", w->text[w->at]) && w->text[w->at] != '\0')
        w->at++;
}

static bool is_at(const walk *w, char c)
{
    return w->at < w->size && w->text[w->at] == c;
}

/* One value, which becomes the caller's; w stands behind it then. */
static json_t *take_value(walk *w)
{
    json_error_t error;
    json_t *value =
        json_loadb(w->text + w->at, w->size - w->at,
                   JSON_DECODE_ANY | JSON_DISABLE_EOF_CHECK | JSON_DECODE_INT_AS_REAL, &error);
    if (value)
        w->at += (size_t)error.position;
    return value;
}

/* From the '{' to the value of a member. */
static bool enter_member(walk *w, const char *name)
{
    if (!is_at(w, '{'))
        return false;
    w->at++;
    for (;;) {
        skip_between(w);
        AUTO(json_t) key = take_value(w);
        if (!json_is_string(key))
            return false; /* the '}' */
        skip_between(w);
        if (strcmp(json_string_value(key), name) == 0)
            return true;
        AUTO(json_t) other = take_value(w);
        if (!other)
            return false;
    }
}

/* From the '[' to an element. */
static bool enter_element(walk *w, size_t index)
{
    if (!is_at(w, '['))
        return false;
    w->at++;
    for (size_t i = 0;; i++) {
        skip_between(w);
        if (i == index)
            return !is_at(w, ']');
        AUTO(json_t) other = take_value(w);
        if (!other)
            return false;
    }
}

/* False: it is missing; w stands at the innermost object or list that is there. */
static bool enter(walk *w, const pr__field_path *path)
{
    if (path->outer && !enter(w, path->outer))
        return false;
    size_t outer_at = w->at;
    if (path->name ? enter_member(w, path->name) : enter_element(w, path->index))
        return true;
    w->at = outer_at;
    return false;
}

pr_status pr__field_fail_at(const pr__field_path *path, const char *text, size_t size,
                            pr_status status, pr_error *err, const char *what)
{
    char shown[PATH_SIZE];
    walk w = {text, size, 0};
    path_text(path, shown);
    skip_between(&w);
    bool there = enter(&w, path);
    return pr__fail(err, status, ORIGIN, "field '%s' %s%s at byte %zu", shown, what,
                    there ? "," : " in the object", w.at);
}
