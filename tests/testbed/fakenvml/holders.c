/* Whether the processes that hold a GPU are still alive: asked at every call, so by pidfd. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "state.h"

/* Those seen alive so far: poll() on one costs a tenth of reading its /proc/PID/stat. */
static struct {
	struct owner owner;
	int fd;
} watched[TRACKS];
static int count;

/* Alive, and the same process: a zombie has given its GPU back, a reused pid is someone else. */
static bool alive_by_stat(const struct owner *o)
{
	char path[64], text[1024], state;
	unsigned long long start;

	snprintf(path, sizeof(path), "/proc/%d/stat", o->pid);
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return errno != ENOENT && errno != ESRCH;	/* not known is not dead */
	ssize_t n = read(fd, text, sizeof(text) - 1);
	close(fd);
	if (n <= 0)
		return n < 0 && errno != ESRCH;
	text[n] = '\0';
	const char *p = strrchr(text, ')');	/* the name in field 2 may hold anything */
	if (!p || sscanf(p, ") %c %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %llu",
			 &state, &start) != 2)
		return false;
	return state != 'Z' && state != 'X' && start == o->start;
}

/* The pidfd is opened first and the start time read then: so it is that process's. */
static bool watch(const struct owner *o)
{
	int fd = count < TRACKS ? (int)syscall(SYS_pidfd_open, o->pid, 0) : -1;
	bool alive = alive_by_stat(o);

	if (fd < 0)
		return alive;
	if (alive) {
		watched[count].owner = *o;
		watched[count++].fd = fd;
	} else {
		close(fd);
	}
	return alive;
}

bool holder_alive(const struct owner *o)
{
	if (o->pid == 0)
		return true;	/* a script */
	for (int i = 0; i < count; i++) {
		if (watched[i].owner.pid != o->pid || watched[i].owner.start != o->start)
			continue;
		struct pollfd p = {.fd = watched[i].fd, .events = POLLIN};
		if (poll(&p, 1, 0) == 0)
			return true;
		close(watched[i].fd);
		watched[i] = watched[--count];
		return alive_by_stat(o);
	}
	return watch(o);
}

void holders_forget(void)
{
	while (count > 0)
		close(watched[--count].fd);
}
