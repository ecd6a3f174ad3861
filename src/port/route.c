/*
 * Taking destinations apart for transports.
 *
 * Owns: the form of an address as transports read it, and the look into the headers for the one
 * header that they obey.
 * Keeps: nothing is copied or changed; what cannot be read is an error, never a guess.
 * Must not know: queues, brokers, readers.
 */
#include "port/route.h"

#include <string.h>

#include <postroom/address.h>
#include <postroom/headers.h>

#include "base/error.h"
#include "base/text.h"

#define ORIGIN "transport.route"

static bool is_lower(char c)
{
    return c >= 'a' && c <= 'z';
}

static bool is_scheme(const char *text, size_t size)
{
    if (size == 0 || size > PR__SCHEME_SIZE_MAX || !is_lower(text[0]))
        return false;
    for (size_t i = 1; i < size; i++) {
        char c = text[i];
        if (!is_lower(c) && !(c >= '0' && c <= '9') && c != '+' && c != '.' && c != '-')
            return false;
    }
    return true;
}

bool pr__scheme_valid(const char *scheme)
{
    return scheme && is_scheme(scheme, strlen(scheme));
}

pr_status pr__scheme_check(const char *scheme, pr_error *err)
{
    if (!pr__scheme_valid(scheme))
        return pr__fail(err, PR_E_INVALID, ORIGIN,
                        "a transport's name is [a-z][a-z0-9+.-]*, at most %d bytes",
                        PR__SCHEME_SIZE_MAX);
    if (strcmp(scheme, PR_TRANSPORT_LOCAL) == 0)
        return pr__fail(err, PR_E_INVALID, ORIGIN, "the name '%s' is reserved", PR_TRANSPORT_LOCAL);
    return PR_OK;
}

bool pr__span_equal(pr__span span, const char *text)
{
    return span.text && strncmp(span.text, text, span.size) == 0 && text[span.size] == '\0';
}

static pr_status malformed(const char *part, pr_error *err)
{
    return pr__fail(err, PR_E_CONTENT, ORIGIN, "the destination has no valid %s", part);
}

/* `in/<id>` or `in/<urn>/<id>` */
static pr_status parse_in(const char *rest, pr__route *route, pr_error *err)
{
    const char *slash = strchr(rest, '/');
    if (slash == rest)
        return malformed("type", err);
    if (slash) {
        route->type = (pr__span){rest, (size_t)(slash - rest)};
        rest = slash + 1;
        slash = strchr(rest, '/');
    }
    if (slash || *rest == '\0')
        return malformed("endpoint id", err);
    route->endpoint = (pr__span){rest, strlen(rest)};
    return PR_OK;
}

pr_status pr__route_parse(const char *destination, pr__route *ret_route, pr_error *err)
{
    pr__route route = {.kind = PR__ROUTE_TOPIC};
    const char *colon = strstr(destination, "://");
    if (!colon || !is_scheme(destination, (size_t)(colon - destination)))
        return malformed("transport", err);
    route.scheme = (pr__span){destination, (size_t)(colon - destination)};
    route.path = colon + 3;
    if (pr__text_starts_with(route.path, "topic/")) {
        const char *type = route.path + strlen("topic/");
        if (*type == '\0' || strchr(type, '/'))
            return malformed("type", err);
        route.type = (pr__span){type, strlen(type)};
    } else if (pr__text_starts_with(route.path, "in/")) {
        route.kind = PR__ROUTE_IN;
        TRY(parse_in(route.path + strlen("in/"), &route, err));
    } else if (pr__text_starts_with(route.path, "reply/")) {
        route.kind = PR__ROUTE_REPLY;
        const char *id = route.path + strlen("reply/");
        if (*id == '\0' || strchr(id, '/'))
            return malformed("reply id", err);
        route.endpoint = (pr__span){id, strlen(id)};
    } else {
        return malformed("kind (topic, in, reply)", err);
    }
    *ret_route = route;
    return PR_OK;
}

static const char *skip_space(const char *at)
{
    while (*at == ' ' || *at == '\t' || *at == '\n' || *at == '\r')
        at++;
    return at;
}

/* Behind a JSON string that starts at `at`; NULL when it does not end. */
static const char *skip_string(const char *at)
{
    for (at++; *at != '"'; at++) {
        if (*at == '\\' && at[1] != '\0')
            at++;
        if (*at == '\0')
            return NULL;
    }
    return at + 1;
}

static bool is_false(const char *value)
{
    static const char *const parts[] = {"{", "\"bool\"", ":", "false"};
    for (size_t i = 0; i < sizeof(parts) / sizeof(parts[0]); i++) {
        value = skip_space(value);
        if (!pr__text_starts_with(value, parts[i]))
            return false;
        value += strlen(parts[i]);
    }
    return true;
}

bool pr__route_unrouted_ok(const pr_message *message)
{
    static const char name[] = "\"" PR_HEADER_NAME_UNROUTED_OK "\"";
    const char *at = message->headers;
    if (!at || !strstr(at, name))
        return false;
    size_t depth = 0;
    while (*at != '\0') {
        if (*at == '{' || *at == '[')
            depth++;
        if ((*at == '}' || *at == ']') && depth > 0)
            depth--;
        if (*at != '"') {
            at++;
            continue;
        }
        const char *end = skip_string(at);
        if (!end)
            return false;
        bool found = depth == 1 && (size_t)(end - at) == sizeof(name) - 1 &&
                     memcmp(at, name, sizeof(name) - 1) == 0;
        if (found && *skip_space(end) == ':')
            return !is_false(skip_space(end) + 1);
        at = end;
    }
    return false;
}
