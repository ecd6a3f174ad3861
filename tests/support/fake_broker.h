/*
 * A broker of the tests that does wrong on purpose: a thread on a loopback socket that speaks AMQP
 * 0-9-1 as RabbitMQ does until a rule of the test says otherwise.
 *
 * Left alone it lets everybody in, declares whatever is asked for, and confirms each publish. Rules
 * put a fault at any step of the conversation; the rest of the functions make it say something at
 * once: ack, nack, return, close, block, cancel, deliver. It records what the client published and
 * settled. All functions may be called by the test's thread at any time; each wait has a deadline.
 */
#ifndef PR_TESTS_FAKE_BROKER_H
#define PR_TESTS_FAKE_BROKER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct fake_broker fake_broker;

/* What the client has just done; the broker's answer to it is where a fault happens. */
typedef enum fake_step {
    FAKE_CONNECT = 0, /* the TCP connection; nothing is to be answered */
    FAKE_HEADER,      /* "AMQP0091": answered by connection.start */
    FAKE_START_OK,    /* tune */
    FAKE_TUNE_OK,     /* nothing */
    FAKE_OPEN,        /* open-ok, the virtual host */
    FAKE_CHANNEL_OPEN,
    FAKE_CONFIRM_SELECT,
    FAKE_EXCHANGE_DECLARE,
    FAKE_QUEUE_DECLARE,
    FAKE_QUEUE_BIND,
    FAKE_QUEUE_UNBIND,
    FAKE_QOS,
    FAKE_CONSUME,
    FAKE_PUBLISH, /* ack, unless acks are held */
    FAKE_SETTLE,  /* ack, nack or reject of a delivery: nothing */
    FAKE_CANCEL,
    FAKE_CHANNEL_CLOSE,
    FAKE_CLOSE,
    FAKE_HEARTBEAT, /* nothing */
    FAKE_END        /* the client's end of the connection was closed */
} fake_step;
#define FAKE_STEPS ((size_t)FAKE_END + 1)

typedef enum fake_fault {
    FAKE_NONE = 0,
    FAKE_CUT,           /* the connection ends */
    FAKE_RESET,         /* the same by RST */
    FAKE_SILENCE,       /* no answer; it goes on reading */
    FAKE_DEAF,          /* no answer, and it reads no more */
    FAKE_GARBAGE,       /* bytes that are no frame */
    FAKE_HTTP,          /* a web server's answer, and the end */
    FAKE_HALF,          /* half of the usual answer, and the end */
    FAKE_BAD_END,       /* the usual answer, with a wrong end of frame */
    FAKE_HUGE,          /* a frame that says to be 2 GiB long */
    FAKE_OTHER,         /* the answer to another question */
    FAKE_SLOW,          /* the usual answer, a byte every 2 ms: no fault, if one has patience */
    FAKE_DRIP,          /* the usual answer, a byte every 300 ms */
    FAKE_FRAME_MAX_1,   /* connection.tune with frame_max 1 */
    FAKE_OLD,           /* at HEADER: "AMQP0080", and the end: another version */
    FAKE_CLOSED,        /* connection.close with code and text */
    FAKE_CHANNEL_CLOSED /* channel.close with code and text */
} fake_fault;

typedef struct fake_rule {
    fake_step step;
    fake_fault fault;
    uint16_t code;
    const char *text; /* borrowed until the rule is gone */
    unsigned after;   /* so many of the step go well first */
    unsigned times;   /* then so many do not; 0 = all */
} fake_rule;

typedef struct fake_published {
    unsigned connection; /* which one since the start, from 1 */
    uint64_t tag;        /* as in confirms; 0 on a channel without */
    bool mandatory;
    uint8_t delivery_mode;
    char exchange[256];
    char routing_key[256];
    char message_id[256];
    char type[256];
    char content_type[128];
    char headers[1024]; /* "name=text\n" or "name:kind\n", in their order */
    size_t body_size;
    char body[256]; /* its beginning, with a NUL */
} fake_published;

typedef struct fake_settled {
    unsigned connection;
    uint64_t tag;
    char verdict; /* 'a'ck, 'n'ack, 'r'eject */
    bool multiple, requeue;
} fake_settled;

typedef struct fake_delivery {
    const char *exchange, *routing_key; /* NULL = "" */
    const void *properties;             /* flags and fields as on the wire; NULL = none */
    size_t properties_size;
    const void *body;
    size_t body_size;
    bool redelivered;
    const char *consumer_tag; /* NULL = that of the last consumer */
} fake_delivery;

/* Whom the broker speaks to: the newest living connection that does this. */
typedef enum fake_peer { FAKE_PUBLISHER = 1, FAKE_CONSUMER } fake_peer;

typedef struct fake_tune {
    uint16_t channel_max, heartbeat_s;
    uint32_t frame_max;
} fake_tune;

fake_broker *fake_broker_start(void); /* aborts when it cannot be done */
void fake_broker_free(fake_broker *broker);
int fake_broker_port(const fake_broker *broker);
/* The next connections are offered this; 0 in a field = 2047, 60 s, 131,072. */
void fake_broker_tune(fake_broker *broker, fake_tune tune);
void fake_broker_rule(fake_broker *broker, fake_rule rule); /* from now on */
void fake_broker_heal(fake_broker *broker); /* no more rules; DEAF and DRIP connections end */
void fake_broker_hold(fake_broker *broker, bool hold); /* no confirms but those told */

/* How often a step was seen since the start; the wait is false when it takes longer than ms. */
unsigned fake_broker_count(fake_broker *broker, fake_step step);
bool fake_broker_wait(fake_broker *broker, fake_step step, unsigned count, int64_t ms);
unsigned fake_broker_living(fake_broker *broker); /* connections */
/* The index-th publish or settle; false when there were fewer. */
bool fake_broker_published(fake_broker *broker, size_t index, fake_published *ret_published);
bool fake_broker_settled(fake_broker *broker, size_t index, fake_settled *ret_settled);
/* Of the last login: "PLAIN", the virtual host, whether it told a capability. */
void fake_broker_login(fake_broker *broker, char ret_mechanism[64], char ret_vhost[256]);
bool fake_broker_capability(fake_broker *broker, const char *name);

/* Each is false when there is no such peer now. */
bool fake_broker_confirm(fake_broker *broker, bool ack, uint64_t tag, bool multiple);
bool fake_broker_return(fake_broker *broker, size_t index, uint16_t code, const char *text);
bool fake_broker_close(fake_broker *broker, fake_peer peer, uint16_t code, const char *text);
bool fake_broker_close_channel(fake_broker *broker, fake_peer peer, uint16_t code,
                               const char *text);
bool fake_broker_block(fake_broker *broker, const char *reason); /* NULL: unblocked */
bool fake_broker_cancel(fake_broker *broker);
bool fake_broker_deliver(fake_broker *broker, const fake_delivery *delivery);
bool fake_broker_raw(fake_broker *broker, fake_peer peer, const void *bytes, size_t size);
bool fake_broker_cut(fake_broker *broker, fake_peer peer);
bool fake_broker_deaf(fake_broker *broker, fake_peer peer);

#endif
