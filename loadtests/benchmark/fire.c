/* Open loop: requests are sent when they are due, whatever became of those before. Linux alone.
 *
 *     fire ADDRESS PORT CONNECTIONS PATIENCE DUE FATES REQUEST...
 *
 * DUE holds the due times as doubles, ascending, in seconds from the start; each REQUEST a whole HTTP/1.1 request, sent
 * in turn. FATES is written at the end: a struct fate for each request that fell due, in order. Prints "started" once
 * it is connected. SIGTERM: nothing more falls due, what is under way is waited for. PATIENCE is how many seconds after
 * the last due time an answer is waited for.
 *
 * In C because it shares the cores with what it measures: a request costs it little beside the system calls. */
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/tcp.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/timerfd.h>
#include <time.h>
#include <unistd.h>

enum { HEAD = 16384, PIECE = 262144, EVENTS = 32 };
#define IN_HEAD INT64_MIN

struct fate {
    double seen, sent, done; /* seconds from the start; 0 where it never came to that */
    int64_t status;          /* 0 without an answer */
};

struct text {
    char *bytes;
    size_t length;
};

/* One connection with at most one request under way. */
struct connection {
    int fd;
    int64_t request;  /* -1 while idle */
    struct text rest; /* what is not sent yet */
    int is_blocked;   /* whether room to send it is waited for */
    int64_t missing;  /* bytes of the body to come, or IN_HEAD */
    int status;
    size_t held; /* bytes of the head so far */
    char head[HEAD + 1];
};

static struct sockaddr_in address;
static int poll_fd, timer_fd;
static double begun;
static struct fate *fates;
static struct text *requests;
static int64_t request_count;

/* The idle connections, used in rotation: a ring. */
static struct connection **idle;
static int64_t connection_count, first_idle, idle_count;

static volatile sig_atomic_t stopped;

static void stop(int signal_number) {
    (void)signal_number;
    stopped = 1;
}

static _Noreturn void fail(const char *what) {
    fprintf(stderr, "fire: %s: %s\n", what, strerror(errno));
    exit(1);
}

static void *allocate(size_t count, size_t size) {
    void *found = calloc(count ? count : 1, size);
    if (found == NULL) fail("memory");
    return found;
}

static double now(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec + 1e-9 * (double)time.tv_nsec - begun;
}

static struct text read_file(const char *path) {
    struct stat about;
    FILE *file = fopen(path, "rb");
    if (file == NULL || fstat(fileno(file), &about) != 0) fail(path);
    struct text found = {allocate((size_t)about.st_size, 1), (size_t)about.st_size};
    if (fread(found.bytes, 1, found.length, file) != found.length) fail(path);
    fclose(file);
    return found;
}

/* Anew, also after it has ended. Blocking, for a few dozen microseconds on loopback. */
static void open_connection(struct connection *one) {
    int on = 1;
    struct epoll_event event = {.events = EPOLLIN, .data.ptr = one};
    one->is_blocked = 0;
    one->fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (one->fd < 0 || connect(one->fd, (struct sockaddr *)&address, sizeof address) != 0) fail("connect");
    setsockopt(one->fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    if (fcntl(one->fd, F_SETFL, O_NONBLOCK) != 0) fail("fcntl");
    if (epoll_ctl(poll_fd, EPOLL_CTL_ADD, one->fd, &event) != 0) fail("epoll_ctl");
}

static void rest(struct connection *one) {
    one->request = -1;
    idle[(first_idle + idle_count++) % connection_count] = one;
}

/* A connection that has ended: its request, if any, stays without an answer. One that was idle keeps its turn. */
static void replace(struct connection *one) {
    close(one->fd);
    open_connection(one);
    if (one->request >= 0) rest(one);
}

/* False where the connection has ended. */
static int send_rest(struct connection *one) {
    ssize_t sent = send(one->fd, one->rest.bytes, one->rest.length, MSG_NOSIGNAL);
    if (sent < 0 && errno != EAGAIN && errno != EINTR) return 0;
    if (sent > 0) {
        one->rest.bytes += sent;
        one->rest.length -= (size_t)sent;
    }
    if (one->is_blocked != (one->rest.length > 0)) {
        struct epoll_event event = {.events = EPOLLIN | (one->rest.length ? EPOLLOUT : 0u), .data.ptr = one};
        if (epoll_ctl(poll_fd, EPOLL_CTL_MOD, one->fd, &event) != 0) fail("epoll_ctl");
        one->is_blocked = one->rest.length > 0;
    }
    return 1;
}

static void send_request(int64_t request) {
    struct connection *one = idle[first_idle];
    first_idle = (first_idle + 1) % connection_count;
    idle_count--;
    fates[request].sent = now();
    for (int attempt = 0; attempt < 2; attempt++) {
        one->request = request;
        one->rest = requests[request % request_count];
        one->held = 0;
        one->missing = IN_HEAD;
        if (send_rest(one)) return;
        one->request = -1; /* ended by the server while idle, and not yet seen by the poll */
        replace(one);
    }
    rest(one);
}

/* Add a piece to the head; once that is whole, `missing` is what the body lacks. False where it is no head of ours. */
static int read_head(struct connection *one, const char *piece, size_t length) {
    size_t before = one->held, taken = length < HEAD - before ? length : HEAD - before;
    memcpy(one->head + before, piece, taken);
    one->held += taken;
    one->head[one->held] = 0;
    char *end = memmem(one->head, one->held, "\r\n\r\n", 4);
    if (end == NULL) return one->held < HEAD;
    size_t body = length - ((size_t)(end + 4 - one->head) - before);
    *end = 0;
    if (strncmp(one->head, "HTTP/1.", 7) != 0) return 0;
    one->status = atoi(one->head + 9);
    char *field = strcasestr(one->head, "\r\ncontent-length:");
    one->missing = (field == NULL ? 0 : atoll(field + 17)) - (int64_t)body;
    return 1;
}

/* What has come; an answer may come in pieces. */
static void receive(struct connection *one) {
    static char piece[PIECE];
    ssize_t length = recv(one->fd, piece, sizeof piece, 0);
    if (length < 0 && (errno == EAGAIN || errno == EINTR)) return;
    if (length <= 0 || one->request < 0) { /* nothing is to come on one that is idle */
        replace(one);
        return;
    }
    if (one->missing != IN_HEAD) {
        one->missing -= length;
    } else if (!read_head(one, piece, (size_t)length)) {
        replace(one);
        return;
    }
    if (one->missing == IN_HEAD || one->missing > 0) return;
    fates[one->request].done = now();
    fates[one->request].status = one->status;
    rest(one);
    if (one->is_blocked) replace(one); /* answered before it was sent: what is left of it is nothing to begin with */
}

static void set_timer(double at) {
    double absolute = begun + at;
    struct itimerspec value = {.it_value = {(time_t)absolute, (long)(1e9 * (absolute - (double)(time_t)absolute))}};
    if (value.it_value.tv_nsec == 0) value.it_value.tv_nsec = 1; /* all zero would disarm it */
    if (timerfd_settime(timer_fd, TFD_TIMER_ABSTIME, &value, NULL) != 0) fail("timerfd_settime");
}

/* How many fell due. */
static int64_t run(const double *due, int64_t count, double patience, const sigset_t *unblocked) {
    struct epoll_event events[EVENTS];
    int64_t following = 0, unsent = 0, armed = -1;
    double last = 0;
    for (;;) {
        double at = now();
        if (stopped && count > following) {
            count = following;
            last = at;
        }
        for (; following < count && due[following] <= at; following++) fates[following].seen = at;
        while (unsent < following && idle_count > 0) send_request(unsent++);
        if (following < count) {
            last = due[following];
            if (armed != following) set_timer(last);
            armed = following;
        } else if ((unsent == following && idle_count == connection_count) || at > last + patience) {
            return following;
        }
        /* SIGTERM is let through here alone, so that it cannot come between the look at it and the wait. */
        int ready = epoll_pwait(poll_fd, events, EVENTS, 1000, unblocked);
        if (ready < 0 && errno != EINTR) fail("epoll_pwait");
        for (int n = 0; n < ready; n++) {
            struct connection *one = events[n].data.ptr;
            if (one == NULL) continue; /* the timer */
            if (one->is_blocked && (events[n].events & EPOLLOUT) && !send_rest(one)) {
                replace(one);
            } else if (events[n].events & ~(uint32_t)EPOLLOUT) {
                receive(one);
            }
        }
    }
}

static void connect_all(void) {
    /* Edge-triggered, it needs no reading: arming it anew makes a new edge. */
    struct epoll_event timer = {.events = EPOLLIN | EPOLLET, .data.ptr = NULL};
    poll_fd = epoll_create1(EPOLL_CLOEXEC);
    timer_fd = timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK | TFD_CLOEXEC);
    if (poll_fd < 0 || timer_fd < 0 || epoll_ctl(poll_fd, EPOLL_CTL_ADD, timer_fd, &timer) != 0) fail("epoll");
    idle = allocate((size_t)connection_count, sizeof *idle);
    struct connection *all = allocate((size_t)connection_count, sizeof *all);
    for (int64_t n = 0; n < connection_count; n++) {
        open_connection(&all[n]);
        rest(&all[n]);
    }
}

int main(int argc, char **argv) {
    if (argc < 8) {
        fprintf(stderr, "usage: fire ADDRESS PORT CONNECTIONS PATIENCE DUE FATES REQUEST...\n");
        return 2;
    }
    sigset_t term, unblocked;
    sigemptyset(&term);
    sigaddset(&term, SIGTERM);
    sigprocmask(SIG_BLOCK, &term, &unblocked);
    sigdelset(&unblocked, SIGTERM);
    sigaction(SIGTERM, &(struct sigaction){.sa_handler = stop}, NULL);

    address = (struct sockaddr_in){.sin_family = AF_INET, .sin_port = htons((uint16_t)atoi(argv[2]))};
    connection_count = atoll(argv[3]);
    errno = EINVAL;
    if (inet_pton(AF_INET, argv[1], &address.sin_addr) != 1 || connection_count < 1) fail("address or connections");
    struct text due = read_file(argv[5]);
    int64_t count = (int64_t)(due.length / sizeof(double));
    fates = allocate((size_t)count, sizeof *fates);
    request_count = argc - 7;
    requests = allocate((size_t)request_count, sizeof *requests);
    for (int64_t n = 0; n < request_count; n++) requests[n] = read_file(argv[7 + n]);
    connect_all();

    puts("started");
    fflush(stdout);
    begun = now() + 0.05;
    count = run((const double *)(const void *)due.bytes, count, atof(argv[4]), &unblocked);
    FILE *out = fopen(argv[6], "wb");
    if (out == NULL || fwrite(fates, sizeof *fates, (size_t)count, out) != (size_t)count || fclose(out) != 0)
        fail(argv[6]);
    return 0;
}
