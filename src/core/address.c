/*
 * Addresses: where a message goes.
 *
 * Owns: the grammar `<transport>://topic/<urn>`, `…/in/<endpoint-id>`, `…/in/<urn>/<endpoint-id>`,
 * `…/reply/<id>`.
 * Keeps: parse and print are a round trip in both directions, byte for byte.
 * Must not know: which transports and endpoints exist.
 */
#include "core/address.h"

#include <string.h>

#include <postroom/limits.h>

#include "base/error.h"
#include "base/text.h"
#include "core/type.h"

#define ORIGIN         "address"
#define SHOWN_SIZE     200 /* of a bad address in an error */
#define TRANSPORT_SIZE sizeof(((const pr_address *)NULL)->transport)

static pr_status malformed(pr_error *err, const char *text, const char *what)
{
    char shown[SHOWN_SIZE];
    pr__format(shown, sizeof(shown), "%s", text);
    return pr__fail(err, PR_E_CONTENT, ORIGIN, "address '%s': %s", shown, what);
}

static bool scheme_char(char c, bool first)
{
    if (c >= 'a' && c <= 'z')
        return true;
    return !first && ((c >= '0' && c <= '9') || c == '+' || c == '.' || c == '-');
}

static pr_status check_transport(const char *transport, size_t size, const char *text,
                                 pr_error *err)
{
    if (size == 0)
        return malformed(err, text, "the transport is missing");
    if (size >= TRANSPORT_SIZE)
        return pr__fail(err, PR_E_LIMIT, ORIGIN,
                        "the transport of an address has %zu bytes, at most %zu", size,
                        TRANSPORT_SIZE - 1);
    for (size_t i = 0; i < size; i++) {
        if (!scheme_char(transport[i], i == 0))
            return malformed(err, text,
                             "the transport is not lower case letters, digits, '+', '.', '-'");
    }
    return PR_OK;
}

/* An endpoint id or a reply id: text without '/', spaces or control characters. */
static pr_status check_id(const char *id, size_t size, const char *what, const char *text,
                          pr_error *err)
{
    char fault[64];
    if (size == 0) {
        pr__format(fault, sizeof(fault), "the %s is missing", what);
        return malformed(err, text, fault);
    }
    if (size > PR_ID_SIZE_MAX)
        return pr__fail(err, PR_E_LIMIT, ORIGIN, "the %s of an address has %zu bytes, at most %d",
                        what, size, PR_ID_SIZE_MAX);
    if (!pr__text_addressable(id, size)) {
        pr__format(fault, sizeof(fault), "the %s has a '/', a space or a control character", what);
        return malformed(err, text, fault);
    }
    return PR_OK;
}

static pr_status check_type(const char *type, size_t size, const char *text, pr_error *err)
{
    if (size == 0)
        return malformed(err, text, "the type is missing");
    pr_error local = PR_ERROR_INIT;
    pr_status status = pr__type_check(type, size, NULL, &local);
    if (status != PR_OK) {
        char shown[SHOWN_SIZE];
        pr__format(shown, sizeof(shown), "%s", text);
        pr__error_context(&local, "address '%s'", shown);
        pr__error_copy(err, &local);
    }
    return status;
}

static void put(char *out, const char *text, size_t size)
{
    memcpy(out, text, size);
    out[size] = '\0';
}

/* What stands behind `in/`. */
static pr_status parse_in(const char *rest, const char *text, pr_address *address, pr_error *err)
{
    const char *slash = strchr(rest, '/');
    const char *endpoint = slash ? slash + 1 : rest;
    address->kind = PR_ADDRESS_IN;
    if (slash) {
        TRY(check_type(rest, (size_t)(slash - rest), text, err));
        put(address->type, rest, (size_t)(slash - rest));
    }
    TRY(check_id(endpoint, strlen(endpoint), "endpoint id", text, err));
    put(address->endpoint, endpoint, strlen(endpoint));
    return PR_OK;
}

static pr_status parse_path(const char *path, const char *text, pr_address *address, pr_error *err)
{
    if (pr__text_starts_with(path, "topic/")) {
        const char *type = path + strlen("topic/");
        address->kind = PR_ADDRESS_TOPIC;
        TRY(check_type(type, strlen(type), text, err));
        put(address->type, type, strlen(type));
        return PR_OK;
    }
    if (pr__text_starts_with(path, "in/"))
        return parse_in(path + strlen("in/"), text, address, err);
    if (pr__text_starts_with(path, "reply/")) {
        const char *id = path + strlen("reply/");
        address->kind = PR_ADDRESS_REPLY;
        TRY(check_id(id, strlen(id), "reply id", text, err));
        put(address->endpoint, id, strlen(id));
        return PR_OK;
    }
    return malformed(err, text, "behind the transport stands none of topic/, in/, reply/");
}

pr_status pr_address_parse(const char *text, pr_address *ret_address, pr_error *err)
{
    if (!text || !ret_address)
        return pr__fail(err, PR_E_INVALID, ORIGIN, "text or ret_address is NULL");
    size_t size = strlen(text);
    if (size > PR_DESTINATION_SIZE_MAX)
        return pr__fail(err, PR_E_LIMIT, ORIGIN, "address has %zu bytes, at most %d", size,
                        PR_DESTINATION_SIZE_MAX);
    if (!pr__utf8_valid(text, size))
        return pr__fail(err, PR_E_CONTENT, ORIGIN, "address is not valid UTF-8");
    const char *separator = strstr(text, "://");
    if (!separator)
        return malformed(err, text, "there is no <transport>://");
    pr_address address = {.size = (uint32_t)sizeof(address)};
    TRY(check_transport(text, (size_t)(separator - text), text, err));
    put(address.transport, text, (size_t)(separator - text));
    TRY(parse_path(separator + strlen("://"), text, &address, err));
    *ret_address = address;
    return PR_OK;
}

/* The parts of an address that is to be printed, as text; what is wrong is said by the parser. */
static pr_status compose(const pr_address *address, char *out, size_t size, pr_error *err)
{
    bool typed = address->type[0] != '\0';
    switch (address->kind) {
    case PR_ADDRESS_TOPIC:
        if (address->endpoint[0] != '\0')
            return pr__fail(err, PR_E_INVALID, ORIGIN, "a topic has no endpoint");
        pr__format(out, size, "%s://topic/%s", address->transport, address->type);
        return PR_OK;
    case PR_ADDRESS_IN:
        pr__format(out, size, "%s://in/%s%s%s", address->transport, address->type, typed ? "/" : "",
                   address->endpoint);
        return PR_OK;
    case PR_ADDRESS_REPLY:
        if (typed)
            return pr__fail(err, PR_E_INVALID, ORIGIN, "a reply address has no type");
        pr__format(out, size, "%s://reply/%s", address->transport, address->endpoint);
        return PR_OK;
    }
    return pr__fail(err, PR_E_INVALID, ORIGIN, "kind %d is none of topic, in, reply",
                    (int)address->kind);
}

static bool terminated(const char *text, size_t size)
{
    return memchr(text, '\0', size) != NULL;
}

pr_status pr_address_print(const pr_address *address, char *out, size_t out_size, pr_error *err)
{
    if (!address || !out || address->size < sizeof(*address))
        return pr__fail(err, PR_E_INVALID, ORIGIN, "address or out is NULL, or size is not set");
    if (!terminated(address->transport, sizeof(address->transport)) ||
        !terminated(address->type, sizeof(address->type)) ||
        !terminated(address->endpoint, sizeof(address->endpoint)))
        return pr__fail(err, PR_E_INVALID, ORIGIN, "a part of the address has no NUL");
    char text[sizeof(pr_address) + sizeof("://topic//")] = "";
    TRY(compose(address, text, sizeof(text), err));
    /* the grammar is the parser's: what does not come back the same is no address */
    pr_address back = {.size = 0};
    pr_error local = PR_ERROR_INIT;
    if (pr_address_parse(text, &back, &local) != PR_OK) {
        local.status = PR_E_INVALID;
        pr__error_copy(err, &local);
        return PR_E_INVALID;
    }
    if (back.kind != address->kind || strcmp(back.type, address->type) != 0 ||
        strcmp(back.endpoint, address->endpoint) != 0 ||
        strcmp(back.transport, address->transport) != 0)
        return pr__fail(err, PR_E_INVALID, ORIGIN, "a part of the address holds another part");
    size_t size = strlen(text);
    if (size >= out_size)
        return pr__fail(err, PR_E_LIMIT, ORIGIN, "out has %zu bytes, the address needs %zu",
                        out_size, size + 1);
    memcpy(out, text, size + 1);
    return PR_OK;
}

pr_status pr__address_of_endpoint(const char *transport, const char *endpoint, char *out,
                                  size_t out_size, pr_error *err)
{
    pr_address address = {.size = (uint32_t)sizeof address, .kind = PR_ADDRESS_IN};
    if (strlen(endpoint) >= sizeof address.endpoint)
        return pr__fail(err, PR_E_LIMIT, ORIGIN, "the endpoint id has %zu bytes, at most %zu",
                        strlen(endpoint), sizeof address.endpoint - 1);
    pr__format(address.transport, sizeof address.transport, "%s", transport);
    pr__format(address.endpoint, sizeof address.endpoint, "%s", endpoint);
    return pr_address_print(&address, out, out_size, err);
}

pr_status pr__address_of_topic(const char *transport, const char *type, char *out, size_t out_size,
                               pr_error *err)
{
    pr_address address = {.size = (uint32_t)sizeof address, .kind = PR_ADDRESS_TOPIC};
    TRY(pr__type_check(type, strlen(type), NULL, err));
    pr__format(address.transport, sizeof address.transport, "%s", transport);
    pr__format(address.type, sizeof address.type, "%s", type);
    return pr_address_print(&address, out, out_size, err);
}
