/*
 * One client's conversation with the fake broker, inside: what was said so far, and what the broker
 * answers. All of it under the broker's lock.
 */
#ifndef PR_TESTS_FAKE_SESSION_H
#define PR_TESTS_FAKE_SESSION_H

#include <pthread.h>

#include "support/fake_broker.h"
#include "support/fake_frames.h"

#define FAKE_SESSIONS_MAX 24
#define FAKE_RULES_MAX    8
#define FAKE_CHANNELS_MAX 16

typedef struct fake_channel {
    bool open, closing, confirms, consumes;
    uint64_t published;  /* delivery tags of its confirms */
    uint64_t deliveries; /* tags of what was delivered to it */
    char consumer[64];
} fake_channel;

typedef struct fake_session {
    int fd; /* -1: free */
    unsigned number;
    bool greeted;   /* its protocol header was read */
    bool deaf;      /* nothing more is read */
    bool ending;    /* closed when all was written */
    bool reset;     /* by RST */
    int drip_ms;    /* a byte each so many ms; 0 = at once */
    int64_t due_ms; /* of the next byte */
    int64_t beat_ms;
    fake_bytes in, out;
    fake_channel channels[FAKE_CHANNELS_MAX];
    uint16_t content_channel; /* a publish whose content is coming; 0 = none */
    bool mandatory;
    char exchange[256], routing_key[256];
    uint64_t content_size;
    fake_bytes properties, body;
} fake_session;

typedef struct fake_record {
    fake_published published;
    fake_bytes properties, body;
} fake_record;

typedef struct fake_active_rule {
    fake_rule rule;
    unsigned seen;
} fake_active_rule;

struct fake_broker {
    pthread_t thread;
    pthread_mutex_t lock;
    pthread_cond_t changed;
    int listener, wake[2], port;
    bool stopping, hold;
    fake_tune tune;
    unsigned connections, consumers;
    unsigned counts[FAKE_STEPS];
    fake_active_rule rules[FAKE_RULES_MAX];
    size_t rule_count;
    fake_session sessions[FAKE_SESSIONS_MAX];
    fake_record *published;
    size_t published_count, published_room;
    fake_settled *settled;
    size_t settled_count, settled_room;
    char mechanism[64], vhost[256], capabilities[512];
};

/* Something was read into session->in: answer all that is whole. */
void fake_session_serve(fake_broker *broker, fake_session *session);
/* The step was seen: count it, and the fault that is due there, if any. */
const fake_rule *fake_session_seen(fake_broker *broker, fake_step step);
/* Say the answer, with a fault. */
void fake_session_answer(fake_session *session, const fake_rule *rule, uint16_t channel,
                         const fake_bytes *answer);

#endif
