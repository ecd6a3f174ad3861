/*
 * Fault points: the ordered hit of the ordered name, and nothing else, fails, stops or kills.
 */
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include "support/test.h"

#include "base/fault.h"
#include "base/time.h"

#ifdef PR_FAULT_POINTS

static void test_without_orders_nothing_fails(void **state)
{
    (void)state;
    pr__fault_reset(NULL);
    for (int i = 0; i < 10; i++)
        assert_false(PR_FAULT_FAILS("test.before_step"));
}

static void test_the_ordered_hit_of_the_ordered_name_fails(void **state)
{
    (void)state;
    pr__fault_reset("test.before_step:3:fail,test.after_step:0:fail");
    for (int i = 1; i <= 5; i++) {
        assert_int_equal(PR_FAULT_FAILS("test.before_step"), i == 3);
        assert_true(PR_FAULT_FAILS("test.after_step"));
        assert_false(PR_FAULT_FAILS("test.after_step_too"));
    }
    pr__fault_reset("test.before_step:1:fail");
    assert_true(PR_FAULT_FAILS("test.before_step")); /* counted from the reset on */
    pr__fault_reset(NULL);
}

static void test_delay_waits(void **state)
{
    (void)state;
    pr__fault_reset("test.before_step:1:delay:30");
    int64_t before = pr__monotonic_us();
    PR_FAULT("test.before_step");
    assert_true(pr__monotonic_us() - before >= 30000);
    pr__fault_reset(NULL);
}

/* Run in a child: the orders of the environment, three hits, then a clean exit with code 5. */
static pid_t child_with(const char *spec, const char *trace)
{
    pid_t pid = fork();
    if (pid == 0) {
        setenv("POSTROOM_FAULT_TRACE", trace, 1);
        pr__fault_reset(spec);
        for (int i = 0; i < 3; i++)
            PR_FAULT("test.after_step");
        _exit(5);
    }
    return pid;
}

static void test_kill_and_pause_reach_the_process(void **state)
{
    (void)state;
    int status;
    pid_t pid = child_with("test.after_step:2:kill", "");
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_true(WIFSIGNALED(status));
    assert_int_equal(WTERMSIG(status), SIGKILL);

    pid = child_with("test.after_step:3:pause", "");
    assert_int_equal(waitpid(pid, &status, WUNTRACED), pid);
    assert_true(WIFSTOPPED(status));
    kill(pid, SIGCONT);
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_true(WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), 5);
}

static void test_a_bad_order_is_not_ignored(void **state)
{
    (void)state;
    static const char *const bad[] = {"test.after_step", "test.after_step:x:kill",
                                      "test.after_step:1:explode", "test.after_step:-1:kill",
                                      "test.after_step:1:delay:long"};
    for (size_t i = 0; i < COUNT_OF(bad); i++) {
        int status;
        pid_t pid = fork();
        if (pid == 0) {
            int null = open("/dev/null", O_WRONLY);
            dup2(null, STDERR_FILENO);
            signal(SIGABRT, SIG_DFL);
            pr__fault_reset(bad[i]);
            _exit(0);
        }
        assert_int_equal(waitpid(pid, &status, 0), pid);
        CHECK_CASE(WIFSIGNALED(status) && WTERMSIG(status) == SIGABRT, bad[i]);
    }
}

static void test_trace_names_each_hit(void **state)
{
    (void)state;
    char path[] = "/tmp/postroom-fault-XXXXXX";
    int fd = mkstemp(path);
    assert_true(fd >= 0);
    int status;
    pid_t pid = child_with("", path);
    assert_int_equal(waitpid(pid, &status, 0), pid);
    char text[256] = "";
    ssize_t size = read(fd, text, sizeof(text) - 1);
    close(fd);
    unlink(path);
    assert_true(size > 0);
    assert_string_equal(text, "test.after_step 1\ntest.after_step 2\ntest.after_step 3\n");
}

enum { THREADS = 4, HITS = 500 };

static void *hit_often(void *user)
{
    int64_t *failed = user;
    for (int i = 0; i < HITS; i++)
        *failed += PR_FAULT_FAILS("test.shared");
    return NULL;
}

static void test_hits_of_all_threads_count_together(void **state)
{
    (void)state;
    pthread_t threads[THREADS];
    int64_t failed[THREADS] = {0};
    pr__fault_reset("test.shared:1999:fail");
    for (int i = 0; i < THREADS; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, hit_often, &failed[i]), 0);
    int64_t sum = 0;
    for (int i = 0; i < THREADS; i++) {
        pthread_join(threads[i], NULL);
        sum += failed[i];
    }
    pr__fault_reset(NULL);
    assert_int_equal(sum, 1);
}

#else

static void test_release_builds_have_no_points(void **state)
{
    (void)state;
    PR_FAULT("test.before_step");
    assert_false(PR_FAULT_FAILS("test.before_step"));
}

#endif

int main(void)
{
    const struct CMUnitTest tests[] = {
#ifdef PR_FAULT_POINTS
        cmocka_unit_test(test_without_orders_nothing_fails),
        cmocka_unit_test(test_the_ordered_hit_of_the_ordered_name_fails),
        cmocka_unit_test(test_delay_waits),
        cmocka_unit_test(test_kill_and_pause_reach_the_process),
        cmocka_unit_test(test_a_bad_order_is_not_ignored),
        cmocka_unit_test(test_trace_names_each_hit),
        cmocka_unit_test(test_hits_of_all_threads_count_together),
#else
        cmocka_unit_test(test_release_builds_have_no_points),
#endif
    };
    return RUN_TESTS(tests);
}
