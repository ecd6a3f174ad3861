/*
 * Reading AMQP URIs.
 *
 * Owns: the grammar, the query parameters and their defaults.
 * Keeps: what it does not know it refuses; an error shows no part in which a password could stand.
 * Must not know: sockets.
 *
 * Source: RabbitMQ URI Specification; RabbitMQ URI Query Parameters (3.10 and 4.x).
 */
#include "transport/amqp/uri.h"

#include <string.h>

#include "base/error.h"
#include "base/text.h"

#define ORIGIN "amqp.uri"

/* A piece of the text that is being read. */
typedef struct piece {
    const char *text; /* NULL: it is not there */
    size_t size;
} piece;

static pr_status wrong(size_t number, const char *what, pr_error *err)
{
    return pr__fail(err, PR_E_CONTENT, ORIGIN, "AMQP URI %zu: %s", number, what);
}

static piece piece_of(const char *begin, const char *end)
{
    return (piece){begin, (size_t)(end - begin)};
}

static const char *find_in(piece in, char c)
{
    return in.size > 0 ? memchr(in.text, c, in.size) : NULL;
}

static int hex_digit(char c)
{
    if (c >= '0' && c <= '9')
        return c - '0';
    if (c >= 'a' && c <= 'f')
        return c - 'a' + 10;
    if (c >= 'A' && c <= 'F')
        return c - 'A' + 10;
    return -1;
}

/* Percent-decode a piece; NUL and bad UTF-8 are refused. A piece that is not there gives NULL. */
static pr_status decode(piece in, const char *what, size_t number, char **ret_text, pr_error *err)
{
    if (!in.text) {
        *ret_text = NULL;
        return PR_OK;
    }
    AUTO(char) out = pr__alloc(in.size + 1);
    if (!out)
        return pr__fail_nomem(err, ORIGIN);
    size_t size = 0;
    for (size_t i = 0; i < in.size; i++) {
        char c = in.text[i];
        if (c == '%') {
            int high = i + 2 < in.size ? hex_digit(in.text[i + 1]) : -1;
            int low = high >= 0 ? hex_digit(in.text[i + 2]) : -1;
            if (low < 0 || (high == 0 && low == 0))
                return pr__fail(err, PR_E_CONTENT, ORIGIN,
                                "AMQP URI %zu: the %s has a '%%' that begins no escape; write %%25",
                                number, what);
            c = (char)(high * 16 + low);
            i += 2;
        }
        out[size++] = c;
    }
    if (!pr__utf8_valid(out, size))
        return pr__fail(err, PR_E_CONTENT, ORIGIN, "AMQP URI %zu: the %s is not valid UTF-8",
                        number, what);
    *ret_text = TAKE(out);
    return PR_OK;
}

/* ---- the query ---- */

static pr_status number_of(const char *text, int64_t max, const char *name, size_t number,
                           int64_t *ret_value, pr_error *err)
{
    if (!pr__parse_int64(text, 0, max, ret_value))
        return pr__fail(err, PR_E_CONTENT, ORIGIN,
                        "AMQP URI %zu: %s is no number between 0 and %lld", number, name,
                        (long long)max);
    return PR_OK;
}

static pr_status choose(const char *text, const char *name, const char *yes, const char *no,
                        size_t number, bool *ret_choice, pr_error *err)
{
    if (strcmp(text, yes) != 0 && strcmp(text, no) != 0)
        return pr__fail(err, PR_E_CONTENT, ORIGIN, "AMQP URI %zu: %s is neither %s nor %s", number,
                        name, yes, no);
    *ret_choice = strcmp(text, yes) == 0;
    return PR_OK;
}

/* librabbitmq sends the host as server name and compares the certificate with it. */
static pr_status check_server_name(const pr__amqp_uri *uri, const char *value, size_t number,
                                   pr_error *err)
{
    if (strcmp(value, uri->host) == 0)
        return PR_OK;
    return wrong(number,
                 "server_name_indication must be the host: the certificate is compared with it; "
                 "use the certificate's name as host",
                 err);
}

static pr_status take_text(char **slot, char **value)
{
    pr__free(*slot);
    *slot = TAKE(*value);
    return PR_OK;
}

static pr_status set_parameter(pr__amqp_uri *uri, piece name, char **value, size_t number,
                               pr_error *err)
{
    static const struct {
        const char *name;
        int64_t max;
    } numbers[] = {{"heartbeat", 3600}, {"connection_timeout", 600000}, {"channel_max", 65535}};
    char known[40];
    if (name.size == 0 || name.size >= sizeof(known) || !pr__utf8_valid(name.text, name.size))
        return wrong(number, "a parameter of the query has no readable name", err);
    pr__format(known, sizeof(known), "%.*s", (int)name.size, name.text);
    int64_t parsed[3] = {0};
    for (size_t i = 0; i < 3; i++) {
        if (strcmp(known, numbers[i].name) != 0)
            continue;
        TRY(number_of(*value, numbers[i].max, known, number, &parsed[i], err));
        if (i == 0)
            uri->heartbeat_s = (int)parsed[i];
        else if (i == 1)
            uri->connect_timeout_ms = parsed[i] ? parsed[i] : PR__AMQP_CONNECT_TIMEOUT_MS;
        else
            uri->channel_max = parsed[i] ? (int)parsed[i] : PR__AMQP_CHANNEL_MAX;
        return PR_OK;
    }
    if (strcmp(known, "auth_mechanism") == 0)
        return choose(*value, known, "external", "plain", number, &uri->external, err);
    if (strcmp(known, "verify") == 0)
        return choose(*value, known, "verify_peer", "verify_none", number, &uri->verify, err);
    if (strcmp(known, "cacertfile") == 0)
        return take_text(&uri->cacertfile, value);
    if (strcmp(known, "certfile") == 0)
        return take_text(&uri->certfile, value);
    if (strcmp(known, "keyfile") == 0)
        return take_text(&uri->keyfile, value);
    if (strcmp(known, "server_name_indication") == 0)
        return check_server_name(uri, *value, number, err);
    return wrong(number,
                 "the query has a parameter that is none; a '?' or '&' of a password is written as "
                 "%3F or %26",
                 err);
}

static pr_status parse_query(pr__amqp_uri *uri, piece query, size_t number, pr_error *err)
{
    const char *at = query.text;
    const char *end = query.text + query.size;
    while (at < end) {
        const char *stop = memchr(at, '&', (size_t)(end - at));
        if (!stop)
            stop = end;
        const char *equals = memchr(at, '=', (size_t)(stop - at));
        if (!equals)
            return wrong(number, "a parameter of the query has no value", err);
        AUTO(char) value = NULL;
        TRY(decode(piece_of(equals + 1, stop), "query", number, &value, err));
        TRY(set_parameter(uri, piece_of(at, equals), &value, number, err));
        at = stop + 1;
    }
    return PR_OK;
}

/* ---- authority ---- */

static pr_status parse_host(pr__amqp_uri *uri, piece place, size_t number, pr_error *err)
{
    piece host = place;
    piece port = {NULL, 0};
    const char *end = place.text + place.size;
    if (place.size > 0 && place.text[0] == '[') {
        const char *close = find_in(place, ']');
        if (!close)
            return wrong(number, "the '[' of the host is not closed", err);
        host = piece_of(place.text + 1, close);
        if (close + 1 < end) {
            if (close[1] != ':')
                return wrong(number, "something else than a port follows the host", err);
            port = piece_of(close + 2, end);
        }
    } else {
        const char *colon = find_in(place, ':');
        if (colon) {
            host = piece_of(place.text, colon);
            port = piece_of(colon + 1, end);
        }
    }
    if (host.size == 0)
        host = (piece){"localhost", strlen("localhost")};
    TRY(decode(host, "host", number, &uri->host, err));
    for (const char *at = uri->host; *at != '\0'; at++) {
        unsigned char c = (unsigned char)*at;
        if (c <= ' ' || c == 0x7F || c == '/')
            return wrong(number, "the host has a space, a '/' or a control character", err);
    }
    if (port.size == 0)
        return PR_OK;
    char digits[8];
    int64_t value = 0;
    pr__format(digits, sizeof(digits), "%.*s", port.size < 7 ? (int)port.size : 7, port.text);
    if (port.size > 5 || !pr__parse_int64(digits, 1, 65535, &value))
        return wrong(number,
                     "the port is no number between 1 and 65535; a '@', ':' or '/' of a "
                     "password is written as %40, %3A or %2F",
                     err);
    uri->port = (int)value;
    return PR_OK;
}

static pr_status parse_user(pr__amqp_uri *uri, piece user, size_t number, pr_error *err)
{
    piece password = {NULL, 0};
    const char *colon = user.text ? find_in(user, ':') : NULL;
    if (colon) {
        password = piece_of(colon + 1, user.text + user.size);
        user.size = (size_t)(colon - user.text);
    }
    bool given = user.text && (user.size > 0 || password.text);
    if (!given) {
        uri->user = pr__strdup("guest");
        uri->password = pr__strdup("guest");
    } else {
        TRY(decode(user, "user", number, &uri->user, err));
        if (password.text)
            TRY(decode(password, "password", number, &uri->password, err));
        else
            uri->password = pr__strdup("");
    }
    return uri->user && uri->password ? PR_OK : pr__fail_nomem(err, ORIGIN);
}

static pr_status parse_one(pr__amqp_uri *uri, piece text, size_t number, pr_error *err)
{
    static const char plain[] = "amqp://", tls[] = "amqps://";
    *uri = (pr__amqp_uri){.port = PR__AMQP_PORT,
                          .heartbeat_s = PR__AMQP_HEARTBEAT_S,
                          .channel_max = PR__AMQP_CHANNEL_MAX,
                          .connect_timeout_ms = PR__AMQP_CONNECT_TIMEOUT_MS,
                          .verify = true};
    const char *end = text.text + text.size;
    const char *at = text.text;
    if (text.size >= sizeof(tls) - 1 && memcmp(at, tls, sizeof(tls) - 1) == 0) {
        uri->tls = true;
        uri->port = PR__AMQP_PORT_TLS;
        at += sizeof(tls) - 1;
    } else if (text.size >= sizeof(plain) - 1 && memcmp(at, plain, sizeof(plain) - 1) == 0) {
        at += sizeof(plain) - 1;
    } else {
        return wrong(number, "it begins neither with amqp:// nor with amqps://", err);
    }
    if (memchr(at, '#', (size_t)(end - at)))
        return wrong(number, "it has a '#'; in a user, password or vhost write %23", err);
    const char *question = memchr(at, '?', (size_t)(end - at));
    const char *stop = question ? question : end;
    const char *slash = memchr(at, '/', (size_t)(stop - at));
    piece authority = piece_of(at, slash ? slash : stop);
    const char *sign = find_in(authority, '@');
    piece user = {NULL, 0};
    if (sign) {
        user = piece_of(at, sign);
        authority = piece_of(sign + 1, authority.text + authority.size);
    }
    TRY(parse_user(uri, user, number, err));
    TRY(parse_host(uri, authority, number, err));
    piece vhost = slash ? piece_of(slash + 1, stop) : (piece){"/", 1};
    if (slash && find_in(vhost, '/'))
        return wrong(number, "the vhost has a '/'; write it as %2F", err);
    TRY(decode(vhost, "vhost", number, &uri->vhost, err));
    if (question)
        TRY(parse_query(uri, piece_of(question + 1, end), number, err));
    if (!uri->tls && (!uri->verify || uri->cacertfile || uri->certfile || uri->keyfile))
        return wrong(number, "verify and certificates are for amqps://", err);
    if (!uri->certfile != !uri->keyfile)
        return wrong(number, "certfile and keyfile belong together", err);
    if (uri->external && !uri->certfile)
        return wrong(number, "auth_mechanism=external needs certfile and keyfile", err);
    return PR_OK;
}

/* Where the next URI begins: a comma that a scheme follows, so that other commas stay. */
static const char *next_comma(const char *at)
{
    for (; *at != '\0'; at++) {
        if (*at == ',' && pr__text_starts_with(at + 1, "amqp"))
            break;
    }
    return at;
}

pr_status pr__amqp_uris_parse(const char *text, pr__amqp_uris **ret_uris, pr_error *err)
{
    AUTO(pr__amqp_uris) uris = pr__alloc(sizeof(*uris));
    if (!uris)
        return pr__fail_nomem(err, ORIGIN);
    atomic_init(&uris->sharers, 1);
    for (const char *at = text;;) {
        const char *end = next_comma(at);
        if (uris->count == PR__AMQP_URIS_MAX)
            return pr__fail(err, PR_E_LIMIT, ORIGIN, "there are more than %d AMQP URIs",
                            PR__AMQP_URIS_MAX);
        uris->count++;
        TRY(parse_one(&uris->items[uris->count - 1], piece_of(at, end), uris->count, err));
        if (*end == '\0')
            break;
        at = end + 1;
    }
    *ret_uris = TAKE(uris);
    return PR_OK;
}

pr__amqp_uris *pr__amqp_uris_share(pr__amqp_uris *uris)
{
    atomic_fetch_add(&uris->sharers, 1);
    return uris;
}

void *pr__amqp_uris_free(pr__amqp_uris *uris)
{
    if (!uris || atomic_fetch_sub(&uris->sharers, 1) > 1)
        return NULL;
    for (size_t i = 0; i < uris->count; i++) {
        pr__amqp_uri *uri = &uris->items[i];
        if (uri->password)
            explicit_bzero(uri->password, strlen(uri->password));
        char *const texts[] = {uri->host,       uri->user,     uri->password, uri->vhost,
                               uri->cacertfile, uri->certfile, uri->keyfile};
        for (size_t k = 0; k < sizeof(texts) / sizeof(texts[0]); k++)
            pr__free(texts[k]);
    }
    return pr__free(uris);
}
