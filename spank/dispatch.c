/* The hooks. In srun, sbatch and salloc: take and check --ladon. In slurmstepd: leave the
 * step's file for the daemon and the step's beat page, and print the daemon's notice. No thread,
 * child, socket, lock or call to Slurm's daemons (S21-S23, S29-S31), and every hook returns
 * success, for anything else can drain the node (S04). */
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "beat.h"
#include "options.h"
#include "port.h"
#include "proc.h"
#include "spool.h"
#include "step.h"

#define DEFAULT_RUN_DIR "/run/ladon"
#ifndef LADON_TRUSTED_UID
#define LADON_TRUSTED_UID 0	/* root: whose files are believed; another in the tests */
#endif

/* One per process, set before the first task and only read by the task hooks (S24). */
static struct {
	const char *run_dir;		/* in Slurm's argv, which lives as long as the plugin */
	struct ladon_site site;
	bool inherited_seen;
	struct ladon_asked asked;	/* S16: spank_option_getopt() is no help in these hooks */
	struct spool spool;
	int proc;			/* an open /proc, or -1 */
} state = {
	.run_dir = DEFAULT_RUN_DIR,
	.site = { .allowed = LADON_ALL_WORDS },
	.spool = { .node = -1, .file = -1 },
	.proc = -1,
};

static bool take_bound(const char *arg)
{
	struct ladon_site *site = &state.site;

	if (strncmp(arg, "allow=", 6) == 0)
		return option_allow(arg + 6, &site->allowed);
	if (strncmp(arg, "window_most=", 12) == 0)
		return option_most(arg + 12, site->window_most, sizeof site->window_most);
	if (strncmp(arg, "grace_most=", 11) == 0)
		return option_most(arg + 11, site->grace_most, sizeof site->grace_most);
	return false;
}

/* plugstack.conf: [run=DIR] [allow=WORD,...] [window_most=12h] [grace_most=1h]. What is not understood is left out: an error
 * here would stop slurmd, srun and sbatch (S02). */
static void take_arguments(int argc, char **argv)
{
	char line[LADON_LINE_MAX];

	for (int i = 0; i < argc; i++) {
		if (strncmp(argv[i], "run=/", 5) == 0) {
			state.run_dir = argv[i] + 4;
		} else if (!take_bound(argv[i])) {
			snprintf(line, sizeof line, "ladon: plugstack.conf: %.200s: not understood, ignored", argv[i]);
			port_debug(line);
		}
	}
}

/* Slurm calls this for an inherited value first and for the command line's afterwards; in
 * sbatch, for #SBATCH before both. The first call that repeats the environment is taken for
 * the environment's: only a fresh value may be refused (S15). */
static bool is_inherited(const char *arg)
{
	const char *inherited = getenv(STEP_OPTION_ENV);

	if (state.inherited_seen || !inherited ||
	    strcmp(option_argument(inherited), option_argument(arg)) != 0)
		return false;
	state.inherited_seen = true;
	return true;
}

static bool on_option(const char *arg, bool login)
{
	bool fresh = login && !is_inherited(arg);

	if (option_take(&state.asked, arg, &state.site, fresh)) {
		if (!login && state.asked.only_less)
			*state.asked.line = '\0';	/* said where it was typed */
		return true;
	}
	port_refuse(state.asked.line);
	return false;
}

int slurm_spank_init(spank_t sp, int argc, char **argv)
{
	if (port_place() != PORT_ELSEWHERE) {		/* S19 */
		take_arguments(argc, argv);
		port_register(sp, on_option);
	}
	return ESPANK_SUCCESS;				/* S02 S04 */
}

/* Login side: say what became of an inherited value, then forget it: srun goes through its
 * options once per het component (S40). */
static void finish_options(void)
{
	if (state.asked.asked && *state.asked.line)
		port_tell(state.asked.line);
	state.asked = (struct ladon_asked){ 0 };
	state.inherited_seen = false;
}

/* The tasks find the page by LADON_BEAT and their slot by SLURM_LOCALID. */
static void make_beat(spank_t sp, const char *node, uint32_t step)
{
	char path[BEAT_PATH_MAX];
	uint32_t user, tasks = 1;
	int n;

	if (step == LADON_STEP_EXTERN || !port_number(sp, PORT_UID, &user))
		return;				/* S18: nothing runs in it that could beat */
	port_number(sp, PORT_LOCAL_TASKS, &tasks);
	n = snprintf(path, sizeof path, "%s/%s/beat/%s", state.run_dir, node, state.spool.name);
	if (n < 0 || (size_t)n >= sizeof path)
		return;
	if (beat_make(&state.spool, tasks, user, LADON_TRUSTED_UID))
		port_set_env(sp, "LADON_BEAT", path);
	else
		port_debug("ladon: no beat page: the step's own progress reports are not seen");
}

/* Some releases hand a batch step no option where sbatch was told --export=NONE (22.05), and its
 * --ladon=off would be lost; the variable for the steps inside is there all the same. */
static void take_batch_option(spank_t sp, uint32_t step)
{
	char said[LADON_SAID_MAX];

	if (step != LADON_STEP_BATCH || state.asked.asked)
		return;
	if (port_env(sp, STEP_OPTION_ENV, said, sizeof said))	/* S12 */
		on_option(said, false);
}

static void write_step(spank_t sp)
{
	struct ladon_step step = { .pid = getpid(), .asked = &state.asked };
	const char *node = getenv("SLURMD_NODENAME");	/* this process's: the job's has the batch host's */
	char text[STEP_TEXT_MAX];
	size_t len;

	/* One inherited of the batch step around this one must not stay: this step would beat for that. */
	port_set_env(sp, "LADON_BEAT", NULL);
	if (!spool_open(&state.spool, state.run_dir, node, LADON_TRUSTED_UID))
		return;
	state.proc = open("/proc", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (!port_number(sp, PORT_JOB, &step.job) || !port_number(sp, PORT_STEP, &step.step))
		return;
	if (!proc_start(state.proc, step.pid, &step.start) ||
	    !proc_boot(state.proc, step.boot, sizeof step.boot))
		return;
	take_batch_option(sp, step.step);
	len = step_text(sp, &step, text);
	if (len == 0 || !spool_write(&state.spool, step.job, step.step, step.pid, LADON_TRUSTED_UID, text, len))
		port_debug("ladon: the step's file could not be written; it goes unwatched");
	else
		make_beat(sp, node, step.step);	/* after it: a page without a step's file is swept away */
}

/* Root, in slurmstepd itself: the pid is the stepd's, and no namespace has been entered. */
int slurm_spank_init_post_opt(spank_t sp, int argc, char **argv)
{
	(void)argc, (void)argv;
	switch (port_place()) {
	case PORT_LOGIN:
		finish_options();
		break;
	case PORT_STEPD:
		write_step(sp);
		break;
	case PORT_ELSEWHERE:
		break;
	}
	return ESPANK_SUCCESS;				/* S04 */
}

/* One line, from one task of the whole step: this node's plugstack.conf does not allow what
 * the login node's did. For an inherited value srun has said so already. */
static void tell_once(spank_t sp)
{
	uint32_t rank, step = 0;

	if (!state.asked.asked || !*state.asked.line || !port_number(sp, PORT_GLOBAL_TASK, &rank) || rank != 0)
		return;
	if (!port_number(sp, PORT_STEP, &step) ||
	    strcmp(step_option_from(sp, step, state.asked.said), "inherited") == 0)
		return;
	port_tell(state.asked.line);
}

/* Root, in slurmstepd. With contain_spank this is a clone with a copied fd table and its own
 * pid (S24): the files were opened in init_post_opt, the pid is Slurm's and not getpid(). */
int slurm_spank_task_post_fork(spank_t sp, int argc, char **argv)
{
	struct ladon_task task = LADON_TASK_NONE;
	unsigned long long start;
	char line[80];

	(void)argc, (void)argv;
	if (port_place() == PORT_STEPD && port_task(sp, &task)) {
		tell_once(sp);
		if (task.id >= 0 && task.pid > 0 && proc_start(state.proc, task.pid, &start)) { /* S18 S20 */
			int n = snprintf(line, sizeof line, "task %d %d %llu\n", task.id, (int)task.pid, start);

			spool_append(&state.spool, line, (size_t)n);
		}
	}
	return ESPANK_SUCCESS;				/* S04: anything else drains the node */
}

static void print_notice(void)
{
	char text[SPOOL_NOTICE_MAX + 1], line[SPOOL_NOTICE_MAX + 16], *rest = text, *part;

	if (spool_notice(&state.spool, LADON_TRUSTED_UID, text, sizeof text) == 0)
		return;
	while ((part = strsep(&rest, "\n"))) {
		if (*part == '\0')
			continue;
		snprintf(line, sizeof line, "ladon: %s", part);
		port_tell(line);
	}
	port_flush();		/* only a step that has a notice waits */
}

/* Root, in slurmstepd or its clone (S24), also after SIGKILL: the step's stderr is still open. */
int slurm_spank_task_exit(spank_t sp, int argc, char **argv)
{
	struct ladon_task task = LADON_TASK_NONE;

	(void)argc, (void)argv;
	if (port_place() == PORT_STEPD && port_task(sp, &task) && task.id == 0)
		print_notice();
	return ESPANK_SUCCESS;				/* S04 */
}

/* Often not reached: Slurm may kill a stepd in here (S27). The file is the daemon's to remove;
 * this only closes what was opened, once or twice (S37). */
int slurm_spank_exit(spank_t sp, int argc, char **argv)
{
	(void)sp, (void)argc, (void)argv;
	spool_close(&state.spool);
	if (state.proc >= 0)
		close(state.proc);
	state.proc = -1;
	return ESPANK_SUCCESS;				/* S04 */
}
