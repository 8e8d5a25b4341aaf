/* The text of a step's file (docs: "The run directory"): one `key value` per line. */
#ifndef LADON_STEP_H
#define LADON_STEP_H

#include "options.h"
#include "port.h"

/* The variable in which Slurm hands a batch job's --ladon to the steps inside (S14, S15). */
#define STEP_OPTION_ENV "SLURM_SPANK__SLURM_SPANK_OPTION_ladon_ladon"

#define STEP_VALUE_MAX 4096	/* bytes of one value; a longer one is left out, never cut */
#define STEP_TEXT_MAX 32768	/* bytes of the whole text, well above what fits its values */

struct ladon_step {
	uint32_t job, step;
	pid_t pid;			/* of slurmstepd */
	unsigned long long start;	/* its start time, clock ticks since boot */
	char boot[64];
	const struct ladon_asked *asked;
};

/* Number of bytes in `buf`, of STEP_TEXT_MAX; 0 if it cannot be told. */
size_t step_text(spank_t sp, const struct ladon_step *step, char *buf);

/* Where a --ladon in this stepd came from: "sbatch", "inherited" or "srun". */
const char *step_option_from(spank_t sp, uint32_t step, const char *arg);

#endif
