/* The port on a real Slurm. Everything is referenced weakly: the library then links against
 * libc alone under -z defs (S03), and loads into any program, doctor's dlopen included. */
#include <time.h>

#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wstrict-prototypes"	/* in slurm.h of 26.05 */
#include <slurm/slurm.h>
#include <slurm/spank.h>
#pragma GCC diagnostic pop

_Static_assert(ESPANK_SUCCESS == 0, "port.h has another success");

#include "port.h"

#pragma weak slurm_debug
#pragma weak slurm_error
#pragma weak slurm_spank_log
#pragma weak spank_context
#pragma weak spank_get_item
#pragma weak spank_getenv
#pragma weak spank_option_register
#pragma weak spank_setenv
#pragma weak spank_unsetenv

/* The name is frozen: it is in the environment variable that carries the option. */
SPANK_PLUGIN(ladon, 1)

_Static_assert(LADON_STEP_BATCH == SLURM_BATCH_SCRIPT, "port.h has another batch step");
_Static_assert(LADON_STEP_EXTERN == SLURM_EXTERN_CONT, "port.h has another extern step");
_Static_assert(sizeof(uid_t) == sizeof(uint32_t), "a uid is asked for as a uint32_t");

static port_option_fn taker;

static int on_option(int val, const char *arg, int remote)
{
	(void)val;
	return taker(arg, !remote) ? 0 : -1;
}

enum port_place port_place(void)
{
	if (!spank_context)
		return PORT_ELSEWHERE;
	switch (spank_context()) {
	case S_CTX_LOCAL:
	case S_CTX_ALLOCATOR:
		return PORT_LOGIN;
	case S_CTX_REMOTE:
		return PORT_STEPD;
	default:
		return PORT_ELSEWHERE;
	}
}

/* In every context, from slurm_spank_init: the option table symbol is not read by sbatch and
 * salloc, and #SBATCH --ladon would fail (S08). 2: the argument is optional (S10). */
void port_register(spank_t sp, port_option_fn take)
{
	static char name[] = "ladon";
	static char argument[] = "WORD,...";
	static char usage[] =	/* Slurm breaks the lines */
		"what Ladon may do when the GPUs of a step stall: off, observe, notify, "
		"cancel or requeue; then, if wanted, window=45m, grace=1h, "
		"class=train|serve|interactive, beat=required|optional, "
		"signal=TERM|INT|HUP|QUIT|USR1|USR2. "
		"Alone: the default action of the site. Write the = sign: "
		"'--ladon cancel' with a blank runs a program called cancel";
	static struct spank_option option = {
		.name = name, .arginfo = argument, .usage = usage, .has_arg = 2, .cb = on_option,
	};

	taker = take;
	if (!spank_option_register || spank_option_register(sp, &option) != ESPANK_SUCCESS)
		port_debug("ladon: Slurm did not take the --ladon option");
}

bool port_number(spank_t sp, enum port_number what, uint32_t *out)
{
	static const spank_item_t items[] = {
		[PORT_JOB] = S_JOB_ID,
		[PORT_STEP] = S_JOB_STEPID,
		[PORT_UID] = S_JOB_UID,
		[PORT_LOCAL_TASKS] = S_JOB_LOCAL_TASK_COUNT,
		[PORT_GLOBAL_TASK] = S_TASK_GLOBAL_ID,
	};
	uint32_t value = 0;

	if (!spank_get_item || spank_get_item(sp, items[what], &value) != ESPANK_SUCCESS)
		return false;
	*out = value;
	return true;
}

bool port_task(spank_t sp, struct ladon_task *out)
{
	/* Slurm may leave them unset and report success (S18). */
	struct ladon_task task = LADON_TASK_NONE;

	if (!spank_get_item || spank_get_item(sp, S_TASK_ID, &task.id) != ESPANK_SUCCESS)
		return false;
	/* The pid is for task_post_fork; in task_exit the task is gone and the id is enough. */
	if (spank_get_item(sp, S_TASK_PID, &task.pid) != ESPANK_SUCCESS)
		task.pid = -1;
	*out = task;
	return true;
}

bool port_env(spank_t sp, const char *name, char *buf, size_t size)
{
	return spank_getenv && spank_getenv(sp, name, buf, (int)size) == ESPANK_SUCCESS;
}

void port_set_env(spank_t sp, const char *name, const char *value)
{
	if (value && spank_setenv)
		spank_setenv(sp, name, value, 1);
	else if (!value && spank_unsetenv)
		spank_unsetenv(sp, name);
}

void port_tell(const char *line)
{
	if (slurm_spank_log)
		slurm_spank_log("%s", line);
}

void port_refuse(const char *line)
{
	if (slurm_error)
		slurm_error("%s", line);
}

void port_debug(const char *line)
{
	if (slurm_debug)
		slurm_debug("%s", line);
}

/* When srun hears that a task died of TERM or KILL it drops what it has not read yet. Seen on
 * 22.05: without a pause a notice arrives in 4 of 10 cancelled steps, with 30 ms in 7 (a small
 * second packet waits 40 ms for the first one's delayed ACK), with 100 ms in all of 46. */
void port_flush(void)
{
	const struct timespec pause = { .tv_nsec = 200 * 1000 * 1000 };

	/* Once, whatever interrupts it (S28). */
	nanosleep(&pause, NULL);
}
