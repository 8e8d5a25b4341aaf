#define _GNU_SOURCE
#include "faults.h"

#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdbool.h>
#include <sys/stat.h>
#include <unistd.h>

static int seen, failing, with;

void faults_arm(int n, int error)
{
	seen = 0;
	failing = n;
	with = error;
}

int faults_seen(void)
{
	return seen;
}

static bool fails(void)
{
	if (++seen != failing)
		return false;
	errno = with;
	return true;
}

int __real_open(const char *path, int flags, ...);
int __real_openat(int at, const char *path, int flags, ...);
int __real_fstat(int fd, struct stat *st);
ssize_t __real_read(int fd, void *buf, size_t n);
ssize_t __real_write(int fd, const void *buf, size_t n);
int __real_renameat(int a, const char *from, int b, const char *to);
int __real_fallocate(int fd, int mode, off_t from, off_t len);
int __real_fchown(int fd, uid_t uid, gid_t gid);

int __wrap_open(const char *path, int flags, ...);
int __wrap_openat(int at, const char *path, int flags, ...);
int __wrap_fstat(int fd, struct stat *st);
ssize_t __wrap_read(int fd, void *buf, size_t n);
ssize_t __wrap_write(int fd, const void *buf, size_t n);
int __wrap_renameat(int a, const char *from, int b, const char *to);
int __wrap_fallocate(int fd, int mode, off_t from, off_t len);
int __wrap_fchown(int fd, uid_t uid, gid_t gid);

int __wrap_open(const char *path, int flags, ...)
{
	return fails() ? -1 : __real_open(path, flags);
}

int __wrap_openat(int at, const char *path, int flags, ...)
{
	va_list args;
	mode_t mode = 0;

	if (flags & O_CREAT) {
		va_start(args, flags);
		mode = va_arg(args, mode_t);
		va_end(args);
	}
	return fails() ? -1 : __real_openat(at, path, flags, mode);
}

int __wrap_fstat(int fd, struct stat *st)
{
	return fails() ? -1 : __real_fstat(fd, st);
}

ssize_t __wrap_read(int fd, void *buf, size_t n)
{
	return fails() ? -1 : __real_read(fd, buf, n);
}

ssize_t __wrap_write(int fd, const void *buf, size_t n)
{
	return fails() ? -1 : __real_write(fd, buf, n);
}

int __wrap_renameat(int a, const char *from, int b, const char *to)
{
	return fails() ? -1 : __real_renameat(a, from, b, to);
}

int __wrap_fallocate(int fd, int mode, off_t from, off_t len)
{
	return fails() ? -1 : __real_fallocate(fd, mode, from, len);
}

int __wrap_fchown(int fd, uid_t uid, gid_t gid)
{
	return fails() ? -1 : __real_fchown(fd, uid, gid);
}
