#define _GNU_SOURCE
#include "spool.h"

#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* Nothing here waits or tries again: local files of root on a tmpfs, or nothing (S23, S28). */

static bool only(int fd, mode_t type, uid_t owner)
{
	struct stat st;

	return fstat(fd, &st) == 0 && (st.st_mode & S_IFMT) == type && st.st_uid == owner &&
		(st.st_mode & (S_IWGRP | S_IWOTH)) == 0;
}

int spool_folder(int at, const char *path, uid_t owner)
{
	int fd = openat(at, path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);

	if (fd >= 0 && !only(fd, S_IFDIR, owner)) {
		close(fd);
		return -1;
	}
	return fd;
}

static bool plain_name(const char *name)
{
	return name && *name && *name != '.' && !strchr(name, '/');
}

bool spool_open(struct spool *spool, const char *run_dir, const char *node, uid_t owner)
{
	int base;

	*spool = SPOOL_NONE;
	if (!plain_name(node))
		return false;
	base = spool_folder(AT_FDCWD, run_dir, owner);
	if (base < 0)
		return false;
	spool->node = spool_folder(base, node, owner);
	close(base);
	return spool->node >= 0;
}

/* The new file under its temporary name. One left by a stepd of the same name is dead. */
static int create(int steps, const char *name)
{
	const int flags = O_WRONLY | O_APPEND | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC;
	int fd = openat(steps, name, flags, 0600);

	if (fd < 0 && unlinkat(steps, name, 0) == 0)
		fd = openat(steps, name, flags, 0600);
	return fd;
}

static bool fill(struct spool *spool, int fd, const char *text, size_t len)
{
	struct stat st;

	if (len > SPOOL_FILE_MAX || write(fd, text, len) != (ssize_t)len || fstat(fd, &st) != 0)
		return false;
	spool->dev = st.st_dev;
	spool->ino = st.st_ino;
	return true;
}

bool spool_write(struct spool *spool, uint32_t job, uint32_t step, pid_t stepd, uid_t owner,
		 const char *text, size_t len)
{
	char hidden[sizeof spool->name + 1];
	int steps = spool->node < 0 ? -1 : spool_folder(spool->node, "steps", owner);
	int fd = -1;

	if (steps < 0)
		return false;
	snprintf(spool->name, sizeof spool->name, "%" PRIu32 ".%" PRIu32 ".%d", job, step, (int)stepd);
	snprintf(hidden, sizeof hidden, ".%s", spool->name);
	fd = create(steps, hidden);
	if (fd >= 0 && !(fill(spool, fd, text, len) && renameat(steps, hidden, steps, spool->name) == 0)) {
		unlinkat(steps, hidden, 0);
		close(fd);
		fd = -1;
	}
	close(steps);
	spool->file = fd;
	return fd >= 0;
}

void spool_append(const struct spool *spool, const char *text, size_t len)
{
	struct stat st;
	ssize_t n;

	if (spool->file < 0 || fstat(spool->file, &st) != 0)
		return;
	if (st.st_dev != spool->dev || st.st_ino != spool->ino)
		return;		/* S42: not our file any more */
	if ((size_t)st.st_size + len > SPOOL_FILE_MAX)
		return;
	n = write(spool->file, text, len);
	/* Half a line is a wrong pid: a full disk must not leave one. */
	if (n > 0 && (size_t)n < len && ftruncate(spool->file, st.st_size) != 0)
		return;
}

static size_t printable(char *buf, size_t len)
{
	for (size_t i = 0; i < len; i++)
		if (buf[i] != '\n' && ((unsigned char)buf[i] < ' ' || buf[i] == 0x7f))
			buf[i] = '?';
	buf[len] = '\0';
	return len;
}

size_t spool_notice(const struct spool *spool, uid_t owner, char *buf, size_t size)
{
	int folder, fd = -1;
	ssize_t n = 0;

	if (spool->node < 0 || !*spool->name)
		return 0;
	folder = spool_folder(spool->node, "notices", owner);
	if (folder < 0)
		return 0;
	/* O_NONBLOCK: a FIFO there must not hold up the end of a step. */
	fd = openat(folder, spool->name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
	if (fd >= 0 && only(fd, S_IFREG, owner))
		n = read(fd, buf, size - 1);
	if (fd >= 0)
		close(fd);
	close(folder);
	return n > 0 ? printable(buf, (size_t)n) : 0;
}

void spool_close(struct spool *spool)
{
	if (spool->file >= 0)
		close(spool->file);
	if (spool->node >= 0)
		close(spool->node);
	*spool = SPOOL_NONE;
}
