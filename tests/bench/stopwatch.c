/* A SPANK plugin that notes when each hook was called, and the thread's CPU time by then. Built twice, one on either side of ladon.so in
 * plugstack.conf: what lies between the two notes is what ladon.so took, in Slurm's own processes. */
#include <fcntl.h>
#include <stdio.h>
#include <time.h>
#include <unistd.h>

#include <slurm/spank.h>

#ifndef SIDE
#define SIDE before
#endif
#define TEXT(x) #x
#define STRING(x) TEXT(x)
#define PLUGIN(name) SPANK_PLUGIN(name, 1)
PLUGIN(SIDE)

static long long ns(clockid_t clock)
{
	struct timespec t;

	clock_gettime(clock, &t);
	return (long long)t.tv_sec * 1000000000 + t.tv_nsec;
}

/* argv[0]: the file that takes the notes, writable for everyone. */
static int note(const char *hook, int argc, char **argv)
{
	char line[128];
	int n, fd;

	if (argc < 1 || spank_context() == S_CTX_SLURMD)
		return ESPANK_SUCCESS;
	n = snprintf(line, sizeof line, "%s %d %s:%s %lld %lld\n", STRING(SIDE), (int)getpid(),
		     spank_context() == S_CTX_REMOTE ? "slurmstepd" : "srun", hook,
		     ns(CLOCK_MONOTONIC), ns(CLOCK_THREAD_CPUTIME_ID));
	fd = open(argv[0], O_WRONLY | O_APPEND | O_CLOEXEC);
	if (fd >= 0) {
		if (write(fd, line, (size_t)n) != n)
			perror(argv[0]);
		close(fd);
	}
	return ESPANK_SUCCESS;
}

#define HOOK(name) \
	int slurm_spank_##name(spank_t sp, int argc, char **argv) \
	{ \
		(void)sp; \
		return note(#name, argc, argv); \
	}

HOOK(init)
HOOK(init_post_opt)
HOOK(task_post_fork)
HOOK(task_exit)
HOOK(exit)
