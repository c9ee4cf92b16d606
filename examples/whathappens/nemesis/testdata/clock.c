/* Preloaded into redis-server, moves its wall clock: by the nanoseconds that the file $LOCKKIT_CLOCKS has for its port. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

enum { PORTS = 65536, BILLION = 1000000000 };

static const volatile int64_t *ahead; /* of this process; NULL in one that is no server */

/* port returns the argument after --port, or 0. */
static int port(void) {
	char line[4096] = {0};
	int fd = open("/proc/self/cmdline", O_RDONLY);
	if (fd < 0)
		return 0;
	ssize_t size = read(fd, line, sizeof line - 1);
	close(fd);
	for (char *arg = line; arg < line + size; arg += strlen(arg) + 1)
		if (strcmp(arg, "--port") == 0)
			return atoi(arg + strlen(arg) + 1);
	return 0;
}

__attribute__((constructor)) static void find_clock(void) {
	const char *path = getenv("LOCKKIT_CLOCKS");
	int own = port();
	if (path == NULL || own <= 0 || own >= PORTS)
		return;
	int fd = open(path, O_RDONLY);
	if (fd < 0)
		return;
	void *all = mmap(NULL, PORTS * sizeof(int64_t), PROT_READ, MAP_SHARED, fd, 0);
	close(fd);
	if (all != MAP_FAILED)
		ahead = (const volatile int64_t *)all + own;
}

int clock_gettime(clockid_t id, struct timespec *ts) {
	int failed = syscall(SYS_clock_gettime, id, ts);
	if (failed || ahead == NULL || (id != CLOCK_REALTIME && id != CLOCK_REALTIME_COARSE))
		return failed;
	int64_t now = (int64_t)ts->tv_sec * BILLION + ts->tv_nsec + *ahead;
	ts->tv_sec = now / BILLION;
	ts->tv_nsec = now % BILLION;
	return 0;
}

int gettimeofday(struct timeval *restrict tv, void *restrict tz) {
	struct timespec ts;
	(void)tz;
	if (clock_gettime(CLOCK_REALTIME, &ts))
		return -1;
	tv->tv_sec = ts.tv_sec;
	tv->tv_usec = ts.tv_nsec / 1000;
	return 0;
}

time_t time(time_t *out) {
	struct timespec ts;
	clock_gettime(CLOCK_REALTIME, &ts);
	if (out != NULL)
		*out = ts.tv_sec;
	return ts.tv_sec;
}
