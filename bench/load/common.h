/*
 * Shared by all load generators: clocks, blocking set-up, and exit with an error.
 *
 * Each generator is one program with one thread. It prints one line of JSON on stdout, with "error" if the
 * run failed. This header is valid C and C++.
 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sched.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

#define READ_BYTES (1 << 20)     /* one recv() */
#define SEND_BYTES (1 << 18)     /* one send() */
#define EVENTS 512
#define SETUP_SECONDS 10         /* a server that does not answer a handshake by then is broken */
#define STALL_SECONDS 10         /* closed loop without any progress */
#define DRAIN_SECONDS 2.5        /* without any delivery, after the last send */

static uint64_t now_ns(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000ull + t.tv_nsec;
}

static inline double now(void) { return now_ns() * 1e-9; }

static inline double cpu_used(void) {
    struct rusage r;
    getrusage(RUSAGE_SELF, &r);
    return r.ru_utime.tv_sec + r.ru_stime.tv_sec + (r.ru_utime.tv_usec + r.ru_stime.tv_usec) * 1e-6;
}

__attribute__((noreturn, format(printf, 1, 2))) static void die(const char *fmt, ...) {
    char text[1024];
    va_list a;
    va_start(a, fmt);
    vsnprintf(text, sizeof text, fmt, a);
    for (char *p = text; *p; p++) /* a server's own words may be quoted in it */
        if (*p == '"' || *p == '\\' || (unsigned char)*p < ' ' || (unsigned char)*p > '~') *p = '\'';
    printf("{\"error\": \"%s\"}\n", text);
    exit(2);
}

static inline void *room(size_t bytes) {
    void *p = calloc(1, bytes);
    if (!p) die("out of memory");
    return p;
}

/* ---- set-up: it may block ---- */

static inline int open_tcp(const char *host, int port, int type, uint32_t from) { /* from: a source address, 0 is any */
    int fd = socket(AF_INET, SOCK_STREAM | type, 0), one = 1;
    if (fd < 0) die("socket: %s (raise ulimit -n)", strerror(errno));
    struct sockaddr_in to = {.sin_family = AF_INET, .sin_port = htons(port)}, source = {.sin_family = AF_INET};
    if (inet_pton(AF_INET, host, &to.sin_addr) != 1) die("%s is no IPv4 address", host);
    if (from) {
        setsockopt(fd, IPPROTO_IP, IP_BIND_ADDRESS_NO_PORT, &one, sizeof one);
        source.sin_addr.s_addr = htonl(from);
        if (bind(fd, (struct sockaddr *)&source, sizeof source)) die("bind: %s", strerror(errno));
    }
    struct timeval patience = {.tv_sec = SETUP_SECONDS};
    setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    if (connect(fd, (struct sockaddr *)&to, sizeof to) && errno != EINPROGRESS) die("connect: %s", strerror(errno));
    return fd;
}

static inline void write_all(int fd, const char *p, size_t n) {
    while (n) {
        ssize_t k = write(fd, p, n);
        if (k <= 0) die("write during set-up: %s", strerror(errno));
        p += k;
        n -= k;
    }
}

static inline unsigned char read_byte(int fd) {
    unsigned char b;
    ssize_t k = read(fd, &b, 1);
    if (k < 0 && errno == EAGAIN) die("no answer during set-up for %d s", SETUP_SECONDS);
    if (k <= 0) die("connection closed during set-up: %s", k ? strerror(errno) : "end of file");
    return b;
}

static inline void pin_to(int cpu) {
    cpu_set_t cpus;
    if (cpu < 0) return;
    CPU_ZERO(&cpus);
    CPU_SET(cpu, &cpus);
    sched_setaffinity(0, sizeof cpus, &cpus);
}

static inline uint32_t make_run_id(void) { return (uint32_t)(now_ns() / 1000 * 2654435761u) ^ getpid(); }

/* ---- latencies, in nanoseconds ---- */

static inline int by_size(const void *a, const void *b) {
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return x < y ? -1 : x > y;
}

static inline void print_percentiles(uint64_t *latencies, size_t n) { /* four members of a JSON object */
    qsort(latencies, n, 8, by_size);
    printf("\"p50_us\": %.1f, \"p95_us\": %.1f, \"p99_us\": %.1f, \"max_us\": %.1f", latencies[n / 2] / 1e3, latencies[n * 95 / 100] / 1e3,
           latencies[n * 99 / 100] / 1e3, latencies[n - 1] / 1e3);
}
