/* All that the plugin needs of Slurm. Only port_slurm.c includes spank.h; the tests put a
 * played Slurm behind the same functions (tests/c/fakeport.c). */
#ifndef LADON_PORT_H
#define LADON_PORT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

struct spank_handle;
typedef struct spank_handle *spank_t;

#ifndef ESPANK_SUCCESS
#define ESPANK_SUCCESS 0		/* port_slurm.c asserts that it is Slurm's */
#endif

/* slurm.h's marks for a batch script's step and an extern one; unsigned and 32 bits wide throughout (S17) */
#define LADON_STEP_BATCH UINT32_C(0xfffffffb)
#define LADON_STEP_EXTERN UINT32_C(0xfffffffc)

enum port_place {
	PORT_ELSEWHERE,			/* slurmd, prolog, epilog: nothing to do there (S19) */
	PORT_LOGIN,			/* srun, sbatch, salloc */
	PORT_STEPD,			/* slurmstepd */
};

enum port_number {
	PORT_JOB,
	PORT_STEP,
	PORT_UID,
	PORT_LOCAL_TASKS,
	PORT_GLOBAL_TASK,
};

struct ladon_task {
	int id;				/* local task id; -1 for the extern step's (S18) */
	pid_t pid;
};
#define LADON_TASK_NONE ((struct ladon_task){ .id = -1, .pid = -1 })

/* Called for a --ladon; `arg` may be NULL. False refuses it, where Slurm listens (S07). */
typedef bool (*port_option_fn)(const char *arg, bool login);

enum port_place port_place(void);
void port_register(spank_t sp, port_option_fn take);

/* These say whether Slurm gave the value; `out` is only then written. */
bool port_number(spank_t sp, enum port_number what, uint32_t *out);
bool port_task(spank_t sp, struct ladon_task *out);

/* A variable of the job's environment. False where it is unset or longer than `size`: half
 * a node list is worse than none. */
bool port_env(spank_t sp, const char *name, char *buf, size_t size);

/* Sets a variable in the environment that the tasks will get; NULL removes it. */
void port_set_env(spank_t sp, const char *name, const char *value);

void port_tell(const char *line);	/* to the user: terminal, or the step's stderr */
void port_refuse(const char *line);	/* to the user, as an error */
void port_debug(const char *line);

/* Gives the step's I/O thread the time to carry out what port_tell() said. */
void port_flush(void);

#endif
