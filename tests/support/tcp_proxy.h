/*
 * A TCP proxy in a thread, before any server on localhost: it hands bytes on until it is told to
 * keep back what the server says, or to cut.
 */
#ifndef PR_TESTS_TCP_PROXY_H
#define PR_TESTS_TCP_PROXY_H

#include <stdbool.h>
#include <stddef.h>

typedef struct tcp_proxy tcp_proxy;

tcp_proxy *tcp_proxy_start(int server_port); /* aborts when it cannot be done */
void tcp_proxy_free(tcp_proxy *proxy);
int tcp_proxy_port(const tcp_proxy *proxy);
/* Nothing that the server says is handed on while this is so; it is kept. */
void tcp_proxy_withhold(tcp_proxy *proxy, bool withhold);
size_t tcp_proxy_withheld(tcp_proxy *proxy); /* bytes kept back now */
void tcp_proxy_cut(tcp_proxy *proxy);        /* all connections; new ones are taken */

#endif
