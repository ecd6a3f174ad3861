/*
 * AMQP URIs: what is read, what is refused, and that no password is ever shown.
 */
#include "support/test.h"

#include "transport/amqp/uri.h"

#define CANARY "s3cr3t-canary"

static void refused(void **state)
{
    (void)state;
    static const struct {
        const char *label, *text, *words;
        pr_status wanted;
    } cases[] = {
        {"nothing", "", "begins neither", PR_E_CONTENT},
        {"another scheme", "http://" CANARY "@host", "begins neither", PR_E_CONTENT},
        {"no scheme", "u:" CANARY "@host", "begins neither", PR_E_CONTENT},
        {"a capital scheme", "AMQP://u:" CANARY "@host", "begins neither", PR_E_CONTENT},
        {"half an escape", "amqp://u:" CANARY "%4@host", "escape", PR_E_CONTENT},
        {"an escape at the end", "amqp://u:" CANARY "%", "no number", PR_E_CONTENT},
        {"an escape of no hex", "amqp://u:" CANARY "%zz@host", "escape", PR_E_CONTENT},
        {"an escaped NUL", "amqp://u:" CANARY "%00@host", "escape", PR_E_CONTENT},
        {"no UTF-8", "amqp://u:" CANARY "%ff@host", "UTF-8", PR_E_CONTENT},
        {"port 0", "amqp://u:" CANARY "@host:0", "the port", PR_E_CONTENT},
        {"port 65536", "amqp://u:" CANARY "@host:65536", "the port", PR_E_CONTENT},
        {"port of letters", "amqp://u:" CANARY "@host:56x2", "the port", PR_E_CONTENT},
        {"a port far too long", "amqp://u:" CANARY "@host:000000005672", "the port", PR_E_CONTENT},
        {"a colon in a password", "amqp://host:" CANARY, "the port", PR_E_CONTENT},
        {"a slash in a password", "amqp://u:" CANARY "/b@host", "the port", PR_E_CONTENT},
        {"a fragment", "amqp://u:" CANARY "#b@host", "%23", PR_E_CONTENT},
        {"brackets not closed", "amqp://u:" CANARY "@[::1:5672", "not closed", PR_E_CONTENT},
        {"rubbish behind brackets", "amqp://u:" CANARY "@[::1]x", "follows the host", PR_E_CONTENT},
        {"a space in the host", "amqp://u:" CANARY "@a%20b", "a space", PR_E_CONTENT},
        {"two vhosts", "amqp://u:" CANARY "@host/a/b", "%2F", PR_E_CONTENT},
        {"an unknown parameter", "amqps://u:" CANARY "@host?colour=1", "that is none",
         PR_E_CONTENT},
        {"a password with a '?'", "amqp://u:1?" CANARY "=1@host", "%3F", PR_E_CONTENT},
        {"a password with '?' and '&'", "amqp://u:1?heartbeat=1&" CANARY "=@host", "%26",
         PR_E_CONTENT},
        {"TLS without TLS", "amqp://u:" CANARY "@host?verify=verify_none", "amqps", PR_E_CONTENT},
        {"no value", "amqp://u:" CANARY "@host?heartbeat", "no value", PR_E_CONTENT},
        {"no name", "amqp://u:" CANARY "@host?=3", "readable name", PR_E_CONTENT},
        {"a negative heartbeat", "amqp://u:" CANARY "@host?heartbeat=-1", "heartbeat",
         PR_E_CONTENT},
        {"a heartbeat of letters", "amqp://h?heartbeat=" CANARY, "heartbeat", PR_E_CONTENT},
        {"too many channels", "amqp://h?channel_max=65536", "channel_max", PR_E_CONTENT},
        {"another verify", "amqps://h?verify=" CANARY, "verify", PR_E_CONTENT},
        {"another mechanism", "amqp://h?auth_mechanism=" CANARY, "auth_mechanism", PR_E_CONTENT},
        {"a certificate without key", "amqps://h?certfile=" CANARY, "belong together",
         PR_E_CONTENT},
        {"a key without certificate", "amqps://h?keyfile=" CANARY, "belong together", PR_E_CONTENT},
        {"external without certificate", "amqp://h?auth_mechanism=external", "needs certfile",
         PR_E_CONTENT},
        {"another server name", "amqps://h?server_name_indication=" CANARY, "must be the host",
         PR_E_CONTENT},
        {"the second is wrong", "amqp://u:" CANARY "@a,amqp://u:" CANARY "@b:x", "AMQP URI 2",
         PR_E_CONTENT},
        {"seventeen of them",
         "amqp://a,amqp://a,amqp://a,amqp://a,amqp://a,amqp://a,amqp://a,amqp://a,amqp://a,"
         "amqp://a,amqp://a,amqp://a,amqp://a,amqp://a,amqp://a,amqp://a,amqp://" CANARY "@a",
         "more than 16", PR_E_LIMIT},
    };
    for (size_t i = 0; i < COUNT_OF(cases); i++) {
        pr_error err = PR_ERROR_INIT;
        pr__amqp_uris *uris = NULL;
        pr_status status = pr__amqp_uris_parse(cases[i].text, &uris, &err);
        check_error(status, &err, cases[i].wanted, cases[i].words, cases[i].label);
        CHECK_CASE(!strstr(err.message, CANARY), cases[i].label);
        CHECK_CASE(!uris, cases[i].label);
    }
}

static void parts(void **state)
{
    (void)state;
    static const struct {
        const char *text, *user, *password, *host, *vhost;
        int port;
    } cases[] = {
        {"amqp://", "guest", "guest", "localhost", "/", 5672},
        {"amqp://host", "guest", "guest", "host", "/", 5672},
        {"amqp://host/", "guest", "guest", "host", "", 5672},
        {"amqp://host/%2f", "guest", "guest", "host", "/", 5672},
        {"amqp://host/orders", "guest", "guest", "host", "orders", 5672},
        {"amqp://u@host", "u", "", "host", "/", 5672},
        {"amqp://u:@host", "u", "", "host", "/", 5672},
        {"amqp://:@host", "", "", "host", "/", 5672},
        {"amqp://@host", "guest", "guest", "host", "/", 5672},
        {"amqp://u:p@host:10000/v", "u", "p", "host", "v", 10000},
        {"amqp://us%65r:p%40%2F%3A%23@ho%73t:1/v%2fhost", "user", "p@/:#", "host", "v/host", 1},
        {"amqp://[::1]", "guest", "guest", "::1", "/", 5672},
        {"amqp://[fe80::1]:65535/x", "guest", "guest", "fe80::1", "x", 65535},
        {"amqp://:1234", "guest", "guest", "localhost", "/", 1234},
        {"amqps://host", "guest", "guest", "host", "/", 5671},
        {"amqp://u:a,b@host", "u", "a,b", "host", "/", 5672},
    };
    for (size_t i = 0; i < COUNT_OF(cases); i++) {
        pr_error err = PR_ERROR_INIT;
        AUTO(pr__amqp_uris) uris = NULL;
        check_ok(pr__amqp_uris_parse(cases[i].text, &uris, &err), &err, cases[i].text);
        const pr__amqp_uri *uri = &uris->items[0];
        CHECK_CASE(uris->count == 1, cases[i].text);
        CHECK_CASE(strcmp(uri->user, cases[i].user) == 0, cases[i].text);
        CHECK_CASE(strcmp(uri->password, cases[i].password) == 0, cases[i].text);
        CHECK_CASE(strcmp(uri->host, cases[i].host) == 0, cases[i].text);
        CHECK_CASE(strcmp(uri->vhost, cases[i].vhost) == 0, cases[i].text);
        CHECK_CASE(uri->port == cases[i].port, cases[i].text);
    }
}

static void parameters(void **state)
{
    (void)state;
    pr_error err = PR_ERROR_INIT;
    AUTO(pr__amqp_uris) uris = NULL;
    check_ok(pr__amqp_uris_parse("amqps://broker.example.org/v?heartbeat=3&connection_timeout=250&"
                                 "channel_max=7&cacertfile=%2Fca.pem&certfile=/c.pem&keyfile=/k.pem"
                                 "&verify=verify_none&auth_mechanism=external&"
                                 "server_name_indication=broker.example.org,amqp://b?heartbeat=0&"
                                 "connection_timeout=0&channel_max=0&auth_mechanism=plain",
                                 &uris, &err),
             &err, "all of them");
    assert_int_equal(uris->count, 2);
    const pr__amqp_uri *all = &uris->items[0];
    assert_true(all->tls && !all->verify && all->external);
    assert_int_equal(all->heartbeat_s, 3);
    assert_int_equal(all->connect_timeout_ms, 250);
    assert_int_equal(all->channel_max, 7);
    assert_string_equal(all->cacertfile, "/ca.pem");
    assert_string_equal(all->certfile, "/c.pem");
    assert_string_equal(all->keyfile, "/k.pem");
    const pr__amqp_uri *zero = &uris->items[1];
    assert_true(!zero->tls && zero->verify && !zero->external && !zero->cacertfile);
    assert_int_equal(zero->heartbeat_s, 0);
    assert_int_equal(zero->connect_timeout_ms, PR__AMQP_CONNECT_TIMEOUT_MS);
    assert_int_equal(zero->channel_max, PR__AMQP_CHANNEL_MAX);
}

/* TLS is verified unless somebody said so. */
static void defaults(void **state)
{
    (void)state;
    pr_error err = PR_ERROR_INIT;
    AUTO(pr__amqp_uris) uris = NULL;
    check_ok(pr__amqp_uris_parse("amqps://a,amqp://b,amqps://c:1", &uris, &err), &err, "three");
    assert_int_equal(uris->count, 3);
    for (size_t i = 0; i < 3; i++) {
        assert_true(uris->items[i].verify);
        assert_int_equal(uris->items[i].heartbeat_s, PR__AMQP_HEARTBEAT_S);
    }
    assert_true(uris->items[0].tls && !uris->items[1].tls && uris->items[2].tls);
    assert_int_equal(uris->items[2].port, 1);
    assert_null(pr__amqp_uris_free(NULL));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(refused),
        cmocka_unit_test(parts),
        cmocka_unit_test(parameters),
        cmocka_unit_test(defaults),
    };
    return RUN_TESTS(tests);
}
