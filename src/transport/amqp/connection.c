/*
 * Connections.
 *
 * Owns: how one is made and closed, and how its failures are told.
 * Keeps: every wait is bounded. TLS is verified, chain and host name, with at least TLS 1.2; the
 * only way around it is verify=verify_none. No error shows a password: user names and texts of the
 * broker at most.
 * Must not know: what the connection is for.
 */
#include "transport/amqp/connection.h"

#include <amqp_framing.h>
#include <amqp_ssl_socket.h>
#include <amqp_tcp_socket.h>
#include <string.h>
#include <sys/time.h>
#include <unistd.h>

#include "base/error.h"
#include "base/text.h"
#include "base/time.h"

#define ORIGIN    "amqp.connection"
#define FRAME_MAX 131072
#define FRAME_MIN 4096 /* AMQP 0-9-1, 4.2.3 */
#define CA_BUNDLE "/etc/ssl/certs/ca-certificates.crt"

static struct timeval timeval_of(int64_t ms)
{
    return (struct timeval){.tv_sec = (time_t)(ms / 1000),
                            .tv_usec = (suseconds_t)(ms % 1000) * 1000};
}

/* ---- errors ---- */

pr_status pr__amqp_closed(pr__amqp_connection *connection, const char *what, uint16_t code,
                          amqp_bytes_t text, pr_error *err)
{
    pr_status status = code == AMQP_NOT_FOUND             ? PR_E_NOT_FOUND
                       : code == AMQP_PRECONDITION_FAILED ? PR_E_CONFLICT
                       : code == AMQP_RESOURCE_LOCKED     ? PR_E_CONFLICT
                                                          : PR_E_BACKEND;
    pr_retry retry = status == PR_E_BACKEND ? PR_RETRY_RECONNECT : PR_RETRY_NEVER;
    pr_status failed =
        pr__fail_retry(err, status, retry, ORIGIN, "%s at %s: %u %.*s", what, connection->peer,
                       (unsigned)code, (int)text.len, text.bytes ? (const char *)text.bytes : "");
    if (err && err->backend_code == 0)
        err->backend_code = code;
    return failed;
}

static const char *advice_of(int status)
{
    switch (status) {
    case AMQP_STATUS_SSL_PEER_VERIFY_FAILED:
        return "; the certificate is not signed by what cacertfile, or the system, trusts";
    case AMQP_STATUS_SSL_HOSTNAME_VERIFY_FAILED:
        return "; the certificate is for another host: use its DNS name, an address does not do";
    case AMQP_STATUS_INCOMPATIBLE_AMQP_VERSION:
    case AMQP_STATUS_BAD_AMQP_DATA:
        return "; is it AMQP 0-9-1 that listens there?";
    case AMQP_STATUS_HOSTNAME_RESOLUTION_FAILED:
        return "; is the host's name right?";
    default: /* codes of a library: there is no advice for the others */
        return "";
    }
}

pr_status pr__amqp_check_status(pr__amqp_connection *connection, int status, const char *what,
                                pr_error *err)
{
    if (status == AMQP_STATUS_OK)
        return PR_OK;
    connection->broken = true;
    bool late =
        connection->guard && pr__watchdog_disarm(connection->settings->watchdog, connection->guard);
    pr_status failed = pr__fail_retry(
        err, status == AMQP_STATUS_NO_MEMORY ? PR_E_NOMEM : PR_E_BACKEND, PR_RETRY_RECONNECT,
        ORIGIN, "%s at %s: %s%s", what, connection->peer,
        late ? "it outlasted its deadline and was cut off" : amqp_error_string2(status),
        advice_of(status));
    if (err && err->backend_code == 0)
        err->backend_code = status;
    return failed;
}

static pr_status check(pr__amqp_connection *connection, amqp_rpc_reply_t reply, const char *what,
                       pr_error *err)
{
    switch (reply.reply_type) {
    case AMQP_RESPONSE_NORMAL:
        return PR_OK;
    case AMQP_RESPONSE_NONE:
        return pr__amqp_check_status(connection, AMQP_STATUS_SOCKET_CLOSED, what, err);
    case AMQP_RESPONSE_LIBRARY_EXCEPTION:
        return pr__amqp_check_status(
            connection, reply.library_error ? reply.library_error : AMQP_STATUS_SOCKET_ERROR, what,
            err);
    case AMQP_RESPONSE_SERVER_EXCEPTION:
        break;
    }
    if (reply.reply.id == AMQP_CHANNEL_CLOSE_METHOD) {
        const amqp_channel_close_t *close = reply.reply.decoded;
        return pr__amqp_closed(connection, what, close->reply_code, close->reply_text, err);
    }
    connection->broken = true;
    if (reply.reply.id == AMQP_CONNECTION_CLOSE_METHOD) {
        const amqp_connection_close_t *close = reply.reply.decoded;
        pr_error local = PR_ERROR_INIT;
        pr_status ignored =
            pr__amqp_closed(connection, what, close->reply_code, close->reply_text, &local);
        (void)ignored;
        local.status = PR_E_BACKEND; /* a whole connection: never about one queue */
        local.retry = PR_RETRY_RECONNECT;
        pr__error_copy(err, &local);
        return PR_E_BACKEND;
    }
    return pr__fail_retry(err, PR_E_BACKEND, PR_RETRY_RECONNECT, ORIGIN,
                          "%s at %s: an answer to another question", what, connection->peer);
}

pr_status pr__amqp_check_rpc(pr__amqp_connection *connection, const char *what, pr_error *err)
{
    return check(connection, amqp_get_rpc_reply(connection->state), what, err);
}

/* ---- socket ---- */

static pr_status prepare_tls(pr__amqp_connection *connection, const pr__amqp_uri *uri,
                             amqp_socket_t *socket, pr_error *err)
{
    const char *bundle = uri->cacertfile ? uri->cacertfile : CA_BUNDLE;
    amqp_ssl_socket_set_verify_peer(socket, uri->verify);
    amqp_ssl_socket_set_verify_hostname(socket, uri->verify);
    if (amqp_ssl_socket_set_ssl_versions(socket, AMQP_TLSv1_2, AMQP_TLSvLATEST) != AMQP_STATUS_OK)
        return pr__fail(err, PR_E_BACKEND, ORIGIN, "TLS 1.2 is not to be had from the library");
    if (uri->verify && amqp_ssl_socket_set_cacert(socket, bundle) != AMQP_STATUS_OK)
        return pr__fail(err, PR_E_BACKEND, ORIGIN,
                        "%s: the certificates of '%s' cannot be read; nothing is trusted",
                        connection->peer, bundle);
    if (uri->certfile &&
        amqp_ssl_socket_set_key(socket, uri->certfile, uri->keyfile) != AMQP_STATUS_OK)
        return pr__fail(err, PR_E_BACKEND, ORIGIN,
                        "%s: certificate '%s' and key '%s' cannot be read, or are no pair",
                        connection->peer, uri->certfile, uri->keyfile);
    return PR_OK;
}

static pr_status open_socket(pr__amqp_connection *connection, const pr__amqp_uri *uri,
                             pr_error *err)
{
    amqp_socket_t *socket =
        uri->tls ? amqp_ssl_socket_new(connection->state) : amqp_tcp_socket_new(connection->state);
    if (!socket)
        return pr__fail_nomem(err, ORIGIN);
    if (uri->tls)
        TRY(prepare_tls(connection, uri, socket, err));
    struct timeval timeout = timeval_of(uri->connect_timeout_ms);
    int status = amqp_socket_open_noblock(socket, uri->host, uri->port, &timeout);
    if (status == AMQP_STATUS_SOCKET_ERROR) {
        connection->broken = true;
        return pr__fail_retry(err, PR_E_BACKEND, PR_RETRY_RECONNECT, ORIGIN,
                              "connect to %s: nobody answers; is the broker running, and is it "
                              "the right port?",
                              connection->peer);
    }
    TRY(pr__amqp_check_status(connection, status, uri->tls ? "connect with TLS" : "connect", err));
    connection->fd = amqp_get_sockfd(connection->state);
    return PR_OK;
}

/* ---- login ---- */

static amqp_table_entry_t flag(const char *name)
{
    amqp_table_entry_t entry = {.key = amqp_cstring_bytes(name),
                                .value = {.kind = AMQP_FIELD_KIND_BOOLEAN}};
    entry.value.value.boolean = 1;
    return entry;
}

static amqp_table_entry_t text(const char *name, const char *value)
{
    amqp_table_entry_t entry = {.key = amqp_cstring_bytes(name),
                                .value = {.kind = AMQP_FIELD_KIND_UTF8}};
    entry.value.value.bytes = amqp_cstring_bytes(value);
    return entry;
}

static pr_status log_in(pr__amqp_connection *connection, const pr__amqp_uri *uri, const char *role,
                        pr_error *err)
{
    char name[320], what[400];
    pr__format(name, sizeof(name), "%s (%s)", connection->settings->connection_name, role);
    pr__format(what, sizeof(what), "login as '%.80s' to vhost '%.80s'",
               uri->external ? "(certificate)" : uri->user, uri->vhost);
    amqp_table_entry_t abilities[] = {flag("consumer_cancel_notify"), flag("connection.blocked"),
                                      flag("basic.nack"), flag("publisher_confirms"),
                                      flag("authentication_failure_close")};
    amqp_table_entry_t capabilities = {.key = amqp_cstring_bytes("capabilities"),
                                       .value = {.kind = AMQP_FIELD_KIND_TABLE}};
    capabilities.value.value.table = (amqp_table_t){
        .num_entries = (int)(sizeof(abilities) / sizeof(abilities[0])), .entries = abilities};
    amqp_table_entry_t entries[] = {text("product", "Postroom"), text("connection_name", name),
                                    capabilities};
    const amqp_table_t properties = {.num_entries = (int)(sizeof(entries) / sizeof(entries[0])),
                                     .entries = entries};
    amqp_rpc_reply_t reply =
        uri->external
            ? amqp_login_with_properties(connection->state, uri->vhost, uri->channel_max, FRAME_MAX,
                                         uri->heartbeat_s, &properties, AMQP_SASL_METHOD_EXTERNAL,
                                         uri->user)
            : amqp_login_with_properties(connection->state, uri->vhost, uri->channel_max, FRAME_MAX,
                                         uri->heartbeat_s, &properties, AMQP_SASL_METHOD_PLAIN,
                                         uri->user, uri->password);
    TRY(check(connection, reply, what, err));
    int frame_max = amqp_get_frame_max(connection->state);
    if (frame_max < FRAME_MIN)
        return pr__fail_retry(err, PR_E_BACKEND, PR_RETRY_RECONNECT, ORIGIN,
                              "%s at %s: frames of %d bytes were agreed, AMQP needs %d", what,
                              connection->peer, frame_max, FRAME_MIN);
    connection->frame_max = (uint32_t)frame_max;
    connection->heartbeat_s = amqp_get_heartbeat(connection->state);
    return PR_OK;
}

static pr_status connect_one(pr__amqp_connection *connection, const pr__amqp_uri *uri,
                             const char *role, pr_error *err)
{
    connection->state = amqp_new_connection();
    if (!connection->state)
        return pr__fail_nomem(err, ORIGIN);
    struct timeval timeout = timeval_of(uri->connect_timeout_ms);
    amqp_set_handshake_timeout(connection->state, &timeout);
    amqp_set_rpc_timeout(connection->state, &timeout);
    TRY(open_socket(connection, uri, err));
    pr__watchdog_set(connection->settings->watchdog, connection->guard, connection->fd);
    pr__watchdog_arm(connection->settings->watchdog, connection->guard,
                     pr__monotonic_us() + uri->connect_timeout_ms * 2000);
    pr_status status = log_in(connection, uri, role, err);
    pr__watchdog_disarm(connection->settings->watchdog, connection->guard);
    return status;
}

pr_status pr__amqp_connect(pr__amqp_settings *settings, const char *role, pr__guard *guard,
                           size_t *turn, pr__amqp_connection *ret_connection, pr_error *err)
{
    pr_status status = PR_E_BACKEND;
    pr_error fault = PR_ERROR_INIT;
    for (size_t i = 0; i < settings->uris->count; i++) {
        const pr__amqp_uri *uri = &settings->uris->items[*turn % settings->uris->count];
        pr__amqp_connection *connection = ret_connection;
        *connection = (pr__amqp_connection){.settings = settings, .guard = guard, .fd = -1};
        pr__format(connection->peer, sizeof(connection->peer), "%.255s:%d", uri->host, uri->port);
        pr_error_clear(&fault);
        status = connect_one(connection, uri, role, &fault);
        if (status == PR_OK) {
            PR__AMQP_COUNT(settings, connects);
            PR__AMQP_COUNT(settings, connections);
            return PR_OK;
        }
        PR__AMQP_COUNT(settings, failures);
        connection->broken = true;
        pr__watchdog_set(settings->watchdog, guard, -1);
        amqp_destroy_connection(connection->state);
        connection->state = NULL;
        ++*turn;
    }
    pr__error_copy(err, &fault);
    return status;
}

void pr__amqp_disconnect(pr__amqp_connection *connection)
{
    if (!connection->state)
        return;
    pr__amqp_settings *settings = connection->settings;
    if (!connection->broken) {
        struct timeval timeout = timeval_of(settings->close_timeout_ms);
        amqp_set_rpc_timeout(connection->state, &timeout);
        pr__watchdog_arm(settings->watchdog, connection->guard,
                         pr__monotonic_us() + settings->close_timeout_ms * 1000);
        amqp_connection_close(connection->state, AMQP_REPLY_SUCCESS);
    }
    pr__watchdog_set(settings->watchdog, connection->guard, -1);
    amqp_destroy_connection(connection->state);
    connection->state = NULL;
    connection->fd = -1;
    atomic_fetch_sub_explicit(&settings->counters.connections, 1, memory_order_relaxed);
}

pr_status pr__amqp_channel_open(pr__amqp_connection *connection, uint16_t channel, bool was_closed,
                                pr_error *err)
{
    if (was_closed) {
        amqp_channel_close_ok_t answer = {.dummy = 0};
        int status =
            amqp_send_method(connection->state, channel, AMQP_CHANNEL_CLOSE_OK_METHOD, &answer);
        TRY(pr__amqp_check_status(connection, status, "channel.close-ok", err));
    }
    amqp_channel_open(connection->state, channel);
    return pr__amqp_check_rpc(connection, "channel.open", err);
}
