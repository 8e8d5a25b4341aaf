#define _GNU_SOURCE
#include "proc.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* The beginning of a small file below `dir`, as a string; false if it cannot be read. */
static bool slurp(int dir, const char *path, char *buf, size_t size)
{
	int fd = openat(dir, path, O_RDONLY | O_CLOEXEC);
	ssize_t n;

	if (fd < 0)
		return false;
	n = read(fd, buf, size - 1);
	close(fd);
	if (n <= 0)
		return false;
	buf[n] = '\0';
	return true;
}

bool proc_start(int proc, pid_t pid, unsigned long long *start)
{
	char path[32], stat[1024], *at, *end;

	snprintf(path, sizeof path, "%d/stat", (int)pid);
	if (!slurp(proc, path, stat, sizeof stat))
		return false;
	at = strrchr(stat, ')');	/* field 2 is the name; it may hold blanks and ")" */
	for (int field = 2; at && field < 22; field++)
		at = strchr(at + 1, ' ');
	if (!at)
		return false;
	*start = strtoull(at + 1, &end, 10);
	return end != at + 1;
}

bool proc_boot(int proc, char *buf, size_t size)
{
	if (!slurp(proc, "sys/kernel/random/boot_id", buf, size))
		return false;
	buf[strcspn(buf, "\n")] = '\0';
	return *buf != '\0';
}
