/* The plugin's hooks with arguments that are in the way of a test left out, and a run directory
 * to use them in. */
#ifndef LADON_TEST_HOOKS_H
#define LADON_TEST_HOOKS_H

#include "check.h"
#include "fakeport.h"

extern char hooks_run[64];	/* the run directory: hooks_run/n1/{steps,notices,beat} */

/* A fresh run directory of node n1, and fake_step(). */
void hooks_begin(void);

/* Hooks; each checks that success came back (S04). `arg` and `more` are plugstack arguments. */
void hook_init(const char *more);
void hook_init_post_opt(void);
void hook_post_fork(void);
void hook_task_exit(void);
void hook_exit(void);

/* A path below the run directory; valid until the next but three. */
const char *hooks_path(const char *below);

/* The only file in n1/steps as text, "" where there is none; more than one fails the test. */
const char *hooks_step_file(void);

/* The last file's name. */
const char *hooks_step_name(void);

/* Hidden and other files in n1/steps. */
int hooks_count(void);

void hooks_put(const char *below, const char *text);
int hooks_fds(void);

#endif
