/* ladon-healthcheck: slurmd's HealthCheckProgram. Reads the one small file that ladond renames
 * into place every tick, compares its age, prints at most one line, ends.
 *
 * slurmd runs the first one before it registers, and waits for it (H01); it gives no argument
 * (H02) and no environment but SLURMD_NODENAME (H03); it kills what is left behind (H04); it
 * does nothing with the exit status but log the output (H06), and only where it is not 0 (H07).
 * So: no socket, GPU, network file system, argument, config or child. What is read here is a
 * regular file below /run, opened so that nothing else in its place can hold us up.
 *
 * Exit: 0 healthy, or a warning (printed); 2 critical; 3 unknown. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#ifndef LADON_RUN_DIR
#define LADON_RUN_DIR "/run/ladon"
#endif
#ifndef LADON_TRUSTED_UID
#define LADON_TRUSTED_UID 0	/* root; another one in tests that do not run as root */
#endif

#define LINE_MAX_BYTES 199	/* newline included (H07) */
#define FILE_MAX_BYTES 4096
#define NODE_MAX_BYTES 255
#define PATH_MAX_BYTES (sizeof LADON_RUN_DIR + NODE_MAX_BYTES + sizeof "/health")

enum status { OK, WARNING, CRITICAL, UNKNOWN };

struct health {
	enum status status;
	double written, max_age;	/* seconds of CLOCK_BOOTTIME; seconds */
	const char *text;
};

/* One line to stdout, printable, cut where it is too long; then the exit status for slurmd. */
__attribute__((format(printf, 2, 3)))
static int say(enum status status, const char *format, ...)
{
	static const char *const names[] = { "ok", "warning", "critical", "unknown" };
	char line[LINE_MAX_BYTES + 1];
	size_t n = (size_t)snprintf(line, sizeof line, "ladon: %s: ", names[status]);
	va_list args;

	va_start(args, format);
	vsnprintf(line + n, sizeof line - n, format, args);
	va_end(args);
	n = strlen(line);
	for (size_t i = 0; i < n; i++)
		if (line[i] < ' ' || line[i] > '~')
			line[i] = '?';
	line[n < LINE_MAX_BYTES ? n : LINE_MAX_BYTES - 1] = '\n';
	n = n < LINE_MAX_BYTES ? n + 1 : LINE_MAX_BYTES;
	if (write(STDOUT_FILENO, line, n) < 0)
		return UNKNOWN;
	return status == WARNING ? OK : (int)status;
}

/* The end of a long path says more than its beginning, and leaves room for what to do. */
static const char *tail(const char *path)
{
	size_t n = strlen(path);

	return n <= 90 ? path : path + n - 90;
}

static int unknown(const char *path, const char *what)
{
	return say(UNKNOWN, "%s: %s", tail(path), what);
}

/* The folder's name is the node's: it must not lead out of the run directory. */
static bool node_name(const char *name)
{
	return name && *name && *name != '.' && !strchr(name, '/') && strlen(name) <= NODE_MAX_BYTES;
}

/* Reads the file whole into `buf`. NULL, or what is wrong and what to do about it. */
static const char *read_health(const char *path, char *buf, size_t size)
{
	int fd = open(path, O_RDONLY | O_NONBLOCK | O_NOFOLLOW | O_NOCTTY | O_CLOEXEC);
	const char *wrong = NULL;
	struct stat st;
	ssize_t n = -1;

	if (fd < 0)
		return errno == ENOENT ? "no such file; is ladond running?" :
			errno == ELOOP ? "is a link, not a file of ladond's; remove it" :
			"cannot be read; is ladond running, and is this root?";
	if (fstat(fd, &st) != 0 || !S_ISREG(st.st_mode))
		wrong = "not a regular file; remove it and restart ladond";
	else if (st.st_uid != LADON_TRUSTED_UID || (st.st_mode & (S_IWGRP | S_IWOTH)))
		wrong = "not root's alone, so not believed; remove it and restart ladond";
	else if ((n = read(fd, buf, size - 1)) < 0)
		wrong = "cannot be read; is ladond running?";
	close(fd);
	if (!wrong)
		buf[n] = '\0';
	return wrong;
}

/* A plain decimal number, no sign, exponent or name; moves `at` behind it and one blank. */
static bool number(char **at, double *out)
{
	size_t n = strspn(*at, "0123456789.");
	char *end;

	if (n == 0 || n > 20 || (*at)[n] != ' ')
		return false;
	*out = strtod(*at, &end);
	if (end != *at + n)
		return false;
	*at = end + 1;
	return true;
}

/* "ladon-health 1\n<code> <boottime_s> <max_age_s> <text>\n" */
static bool parse(char *buf, struct health *out)
{
	static const char head[] = "ladon-health 1\n";
	char *at = buf + sizeof head - 1;
	char *end;

	if (strncmp(buf, head, sizeof head - 1) != 0)
		return false;
	end = strchr(at, '\n');
	if (!end || at[0] < '0' || at[0] > '3' || at[1] != ' ')
		return false;
	*end = '\0';
	out->status = (enum status)(at[0] - '0');
	at += 2;
	if (!number(&at, &out->written) || !number(&at, &out->max_age))
		return false;
	out->text = at;
	return true;
}

int main(void)
{
	const char *node = getenv("SLURMD_NODENAME"), *wrong;
	char path[PATH_MAX_BYTES], buf[FILE_MAX_BYTES];
	struct health health;
	struct timespec now;
	double age;

	if (!node_name(node))
		return say(UNKNOWN, "SLURMD_NODENAME is not a node's name; slurmd sets it, "
			   "by hand: SLURMD_NODENAME=<node> ladon-healthcheck");
	snprintf(path, sizeof path, "%s/%s/health", LADON_RUN_DIR, node);
	wrong = read_health(path, buf, sizeof buf);
	if (wrong)
		return unknown(path, wrong);
	if (!parse(buf, &health))
		return unknown(path, "not understood; are ladond and this check of one version?");
	clock_gettime(CLOCK_BOOTTIME, &now);
	age = (double)now.tv_sec + (double)now.tv_nsec / 1e9 - health.written;
	if (age < -0.001)		/* it was written rounded to ms */
		return unknown(path, "from the future, so from another boot; is ladond running?");
	if (age > health.max_age)
		return say(UNKNOWN, "%s: %.0f s old, %.0f s allowed; is ladond running?", tail(path), age,
			   health.max_age);
	if (health.status == OK)
		return OK;					/* H07: silent */
	return say(health.status, "%s", health.text);
}
