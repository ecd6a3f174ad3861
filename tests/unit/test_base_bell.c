/*
 * The doorbell between processes: what it takes the place of and what it leaves alone, and that no
 * ring ever waits or fails for anybody.
 */
#include <errno.h>
#include <fcntl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "support/test.h"

#include "base/bell.h"
#include "base/time.h"

#define SECOND_US 1000000

static char folder[64], path[100];

static int set_up(void **state)
{
    (void)state;
    snprintf(folder, sizeof folder, "/tmp/bell-XXXXXX");
    assert_non_null(mkdtemp(folder));
    snprintf(path, sizeof path, "%s/bell", folder);
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    unlink(path);
    assert_int_equal(rmdir(folder), 0); /* nothing else was left there */
    return 0;
}

static void rings_are_taken_once(void **state)
{
    pr__bell bell;
    (void)state;
    pr__bell_init(&bell, path);
    assert_int_equal(bell.fd, -1);
    assert_false(pr__bell_take(&bell));
    assert_false(pr__bell_ring(path)); /* nobody listens */
    pr__bell_tend(&bell, 0);
    assert_true(bell.fd >= 0);
    assert_false(pr__bell_take(&bell));
    assert_true(pr__bell_ring(path));
    assert_true(pr__bell_ring(path));
    assert_true(pr__bell_take(&bell));
    assert_false(pr__bell_take(&bell));
    pr__bell_done(&bell);
    assert_int_equal(access(path, F_OK), -1);
    assert_false(pr__bell_ring(path));
}

/* The queue is full, since nobody takes: the ringer is not held up. */
static void a_full_bell_holds_nobody_up(void **state)
{
    pr__bell bell;
    (void)state;
    pr__bell_init(&bell, path);
    pr__bell_tend(&bell, 0);
    int64_t began_us = pr__monotonic_us();
    for (int i = 0; i < 5000; i++)
        assert_true(pr__bell_ring(path));
    assert_true(pr__monotonic_us() - began_us < 10 * SECOND_US);
    errno = EDOM;
    assert_true(pr__bell_ring(path));
    assert_int_equal(errno, EDOM); /* a commit's caller may look at it */
    assert_true(pr__bell_take(&bell));
    pr__bell_done(&bell);
}

/* Empty datagrams of other languages ring too. */
static void an_empty_datagram_rings(void **state)
{
    pr__bell bell;
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    (void)state;
    pr__bell_init(&bell, path);
    pr__bell_tend(&bell, 0);
    snprintf(address.sun_path, sizeof address.sun_path, "%s", path);
    int fd = socket(AF_UNIX, SOCK_DGRAM, 0);
    assert_true(fd >= 0);
    assert_int_equal(sendto(fd, "", 0, 0, (const struct sockaddr *)&address, sizeof address), 0);
    close(fd);
    assert_true(pr__bell_take(&bell));
    pr__bell_done(&bell);
}

static void a_path_left_behind_is_taken_over(void **state)
{
    pr__bell dead, bell;
    (void)state;
    pr__bell_init(&dead, path);
    pr__bell_tend(&dead, 0);
    close(dead.fd); /* as kill -9 leaves it */
    assert_int_equal(access(path, F_OK), 0);
    assert_false(pr__bell_ring(path));
    pr__bell_init(&bell, path);
    pr__bell_tend(&bell, 0);
    assert_true(bell.fd >= 0);
    assert_true(pr__bell_ring(path));
    assert_true(pr__bell_take(&bell));
    pr__bell_done(&bell);
}

/* Two on one path: the first has it, and the second when the first is gone. */
static void a_living_one_is_left_alone(void **state)
{
    pr__bell first, second;
    (void)state;
    pr__bell_init(&first, path);
    pr__bell_init(&second, path);
    pr__bell_tend(&first, 0);
    pr__bell_tend(&second, 0);
    assert_int_equal(second.fd, -1);
    assert_true(pr__bell_ring(path));
    assert_true(pr__bell_take(&first));
    pr__bell_done(&second); /* it does not take the first one's socket away */
    assert_true(pr__bell_ring(path));
    assert_true(pr__bell_take(&first));
    pr__bell_done(&first);
    pr__bell_tend(&second, 60 * SECOND_US);
    assert_true(second.fd >= 0);
    pr__bell_done(&second);
}

/* Somebody cleans up temporary files: it is there again after a while. */
static void a_path_that_was_removed_comes_back(void **state)
{
    pr__bell bell;
    (void)state;
    pr__bell_init(&bell, path);
    pr__bell_tend(&bell, 0);
    assert_int_equal(unlink(path), 0);
    pr__bell_tend(&bell, 60 * SECOND_US);
    assert_true(pr__bell_ring(path));
    assert_true(pr__bell_take(&bell));
    pr__bell_done(&bell);
}

static void a_file_is_never_removed(void **state)
{
    pr__bell bell;
    (void)state;
    int fd = open(path, O_CREAT | O_WRONLY, 0600);
    assert_true(fd >= 0);
    close(fd);
    pr__bell_init(&bell, path);
    pr__bell_tend(&bell, 0);
    assert_int_equal(bell.fd, -1);
    assert_false(pr__bell_ring(path));
    pr__bell_done(&bell);
    assert_int_equal(access(path, F_OK), 0);
}

static void paths_that_are_none(void **state)
{
    char longer[200];
    pr__bell bell;
    (void)state;
    memset(longer, 'x', sizeof longer - 1);
    longer[sizeof longer - 1] = '\0';
    const char *const none[] = {"", longer, "/does/not/exist/bell", "/dev/null"};
    for (size_t i = 0; i < COUNT_OF(none); i++) {
        CHECK_CASE(!pr__bell_ring(none[i]), none[i]);
        pr__bell_init(&bell, none[i]);
        pr__bell_tend(&bell, 0);
        CHECK_CASE(bell.fd == -1, none[i]);
        pr__bell_done(&bell);
    }
    unsetenv(PR__BELL_ENVIRONMENT);
    assert_string_equal(pr__bell_path(NULL), "");
    setenv(PR__BELL_ENVIRONMENT, "/a", 1);
    assert_string_equal(pr__bell_path(NULL), "/a");
    assert_string_equal(pr__bell_path("/b"), "/b");
    assert_string_equal(pr__bell_path(""), ""); /* none, whatever the environment says */
    unsetenv(PR__BELL_ENVIRONMENT);
}

#define CASE(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        CASE(paths_that_are_none),
        CASE(a_file_is_never_removed),
        CASE(a_living_one_is_left_alone),
        CASE(a_path_left_behind_is_taken_over),
        CASE(a_path_that_was_removed_comes_back),
        CASE(rings_are_taken_once),
        CASE(an_empty_datagram_rings),
        CASE(a_full_bell_holds_nobody_up),
    };
    return RUN_TESTS(tests);
}
