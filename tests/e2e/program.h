/*
 * Running the built command from a test: arguments and input in, exit code and both outputs out.
 *
 * The program's path comes from the environment's POSTROOM_PROGRAM, set by Meson. Each case has a
 * folder of its own, which is the program's current folder.
 */
#ifndef PR_TESTS_E2E_PROGRAM_H
#define PR_TESTS_E2E_PROGRAM_H

#include <stdint.h>
#include <sys/types.h>

#include <jansson.h>

#include "support/test.h"

#define DEADLINE_MS 30000 /* for whatever must happen */
#define FOLDER_SIZE 128

typedef struct result {
    int code;  /* exit code; 128 + the signal that ended it */
    char *out; /* NUL-terminated */
    char *err;
    size_t out_size;
} result;

/* A fresh folder, entered; left and removed by folder_leave. */
typedef struct folder {
    char path[FOLDER_SIZE];
    char before[512];
} folder;

void folder_enter(folder *of);
void folder_leave(folder *of);

/* Run `postroom ARGUMENTS`; arguments end with NULL. input NULL = nothing. */
void run_program(result *ret, const char *input, size_t input_size, const char *const *arguments);
void result_done(result *of);

/* run(&r, input, "send", …): the usual call. */
#define run_input(ret, input, ...)                                                                 \
    run_program((ret), (input), strlen(input), (const char *const[]){__VA_ARGS__, NULL})
#define run(ret, ...) run_program((ret), NULL, 0, (const char *const[]){__VA_ARGS__, NULL})

/* Run it, expect this exit code and texts in its outputs ("" = nothing at all, NULL = whatever). */
void expect_program(int code, const char *out, const char *err, const char *label,
                    const char *const *arguments);
#define expect(code, out, err, ...)                                                                \
    expect_program((code), (out), (err), #__VA_ARGS__, (const char *const[]){__VA_ARGS__, NULL})

void check_result(const result *of, int code, const char *out, const char *err, const char *label);

/* Start it and go on; *ret_input (may be NULL) is a pipe to its standard input. Outputs go to files
   "out" and "err" of the current folder. */
pid_t start_program(int *ret_input, const char *const *arguments);
#define start(ret_input, ...) start_program((ret_input), (const char *const[]){__VA_ARGS__, NULL})
/* Wait for its end within the deadline; its outputs are read. */
void finish_program(pid_t pid, result *ret);

/* A number from a database by SQL; fails the test when it cannot be read. */
int64_t number_of(const char *path, const char *sql);
/* Run SQL on a database. */
void change(const char *path, const char *sql);
/* Wait until the number is at least `wanted`. */
void wait_number(const char *path, const char *sql, int64_t wanted);

char *read_file(const char *path); /* NULL when it is not there; to be freed */
void write_file(const char *path, const char *text);
bool file_exists(const char *path);
void sleep_a_little(void); /* between two looks at a condition */
int64_t now_ms(void);

/* The first message's id of a store's outbox. */
void first_id(const char *path, char ret_id[64]);

#endif
