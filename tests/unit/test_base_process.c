/*
 * How a process is called: host and process id, text in any case.
 */
#include <unistd.h>

#include "support/test.h"

#include "base/process.h"
#include "base/text.h"

static void test_name_is_host_and_pid(void **state)
{
    char host[80], name[120], wanted[120];
    (void)state;
    pr__process_host(host, sizeof host);
    assert_true(host[0] != '\0');
    assert_true(pr__utf8_valid(host, strlen(host)));
    pr__process_name(name, sizeof name);
    snprintf(wanted, sizeof wanted, "%s:%ld", host, (long)getpid());
    assert_string_equal(name, wanted);
}

static void test_name_is_cut_to_its_room(void **state)
{
    char name[4];
    (void)state;
    memset(name, 'x', sizeof name);
    pr__process_name(name, sizeof name);
    assert_true(strlen(name) < sizeof name);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_name_is_host_and_pid),
        cmocka_unit_test(test_name_is_cut_to_its_room),
    };
    return RUN_TESTS(tests);
}
