#define _GNU_SOURCE
#include "beat.h"

#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

/* All its blocks are there from the start, so that no beat ever meets a full disk; and it is the
 * user's only when it is whole. */
static bool fill(int fd, uint32_t tasks, uid_t user)
{
	off_t slots = tasks > BEAT_SLOTS_LEAST ? (off_t)tasks : BEAT_SLOTS_LEAST;

	return fallocate(fd, 0, 0, slots * BEAT_SLOT) == 0 && fchown(fd, user, (gid_t)-1) == 0;
}

/* The folder is root's alone, so nobody can put a link or a file of his own in the page's place. */
bool beat_make(const struct spool *spool, uint32_t tasks, uid_t user, uid_t owner)
{
	const int flags = O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC;
	char hidden[sizeof spool->name + 1];
	int folder, fd;
	bool made;

	if (spool->node < 0 || !*spool->name || tasks > BEAT_TASKS_MOST)
		return false;
	folder = spool_folder(spool->node, "beat", owner);
	if (folder < 0)
		return false;
	snprintf(hidden, sizeof hidden, ".%s", spool->name);
	unlinkat(folder, hidden, 0);	/* of a stepd that died with this very number */
	fd = openat(folder, hidden, flags, 0600);
	made = fd >= 0 && fill(fd, tasks, user) && renameat(folder, hidden, folder, spool->name) == 0;
	if (fd >= 0) {
		if (!made)
			unlinkat(folder, hidden, 0);
		close(fd);
	}
	close(folder);
	return made;
}
