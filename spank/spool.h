/* The node's run directory, as the plugin uses it: one file per step, written once and then
 * appended to; one notice per step, read; and beat.h's pages. Everything else there is the daemon's (S27). */
#ifndef LADON_SPOOL_H
#define LADON_SPOOL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#define SPOOL_FILE_MAX 65536	/* bytes of a step's file, task lines included */
#define SPOOL_NOTICE_MAX 1024

/* Opened in init_post_opt and only read afterwards: with contain_spank the task hooks run in
 * a clone with a copied fd table, another pid and another namespace (S24). */
struct spool {
	int node;		/* RUN; -1: closed, all below is then a no-op */
	int file;		/* steps/NAME, O_APPEND; -1: not written */
	dev_t dev;		/* which file that fd was, in case somebody closes it under us */
	ino_t ino;
	char name[40];		/* JOB.STEP.STEPDPID */
};
#define SPOOL_NONE ((struct spool){ .node = -1, .file = -1 })

/* A folder that `owner` alone can write, not reached through a link; else -1. */
int spool_folder(int at, const char *path, uid_t owner);

/* Opens RUN_DIR/NODE, trusting only what `owner` alone can write. False: there is no such
 * folder, Ladon is not on this node, and nothing is to be done. */
bool spool_open(struct spool *spool, const char *run_dir, const char *node, uid_t owner);

/* Writes steps/JOB.STEP.STEPDPID: temporary name, then rename. False leaves no file behind. */
bool spool_write(struct spool *spool, uint32_t job, uint32_t step, pid_t stepd, uid_t owner,
		 const char *text, size_t len);

/* Appends to the step's file, in one write. */
void spool_append(const struct spool *spool, const char *text, size_t len);

/* The daemon's notice for this step, as printable lines; the number of bytes, 0 for none. */
size_t spool_notice(const struct spool *spool, uid_t owner, char *buf, size_t size);

void spool_close(struct spool *spool);

#endif
