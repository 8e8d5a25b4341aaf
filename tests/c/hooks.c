#define _GNU_SOURCE
#include "hooks.h"

#include <dirent.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

int slurm_spank_init(spank_t sp, int argc, char **argv);
int slurm_spank_init_post_opt(spank_t sp, int argc, char **argv);
int slurm_spank_task_post_fork(spank_t sp, int argc, char **argv);
int slurm_spank_task_exit(spank_t sp, int argc, char **argv);
int slurm_spank_exit(spank_t sp, int argc, char **argv);

char hooks_run[64];
static char step_name[256], run_argument[80];

static void clear(void)
{
	char command[128];

	snprintf(command, sizeof command, "rm -rf '%s'", hooks_run);
	if (system(command) != 0)
		perror(command);
}

void hooks_begin(void)
{
	if (hooks_run[0])
		clear();	/* a test may begin anew many times */
	else
		atexit(clear);
	strcpy(hooks_run, "/tmp/ladon-c-XXXXXX");
	if (!mkdtemp(hooks_run))
		abort();
	chmod(hooks_run, 0755);
	mkdir(hooks_path("n1"), 0755);
	mkdir(hooks_path("n1/steps"), 0700);
	mkdir(hooks_path("n1/notices"), 0700);
	mkdir(hooks_path("n1/beat"), 0755);
	setenv("SLURMD_NODENAME", "n1", 1);
	fake_step();
}

void hook_init(const char *more)
{
	static char copy[256];
	char *argv[] = { run_argument, copy, NULL };

	snprintf(run_argument, sizeof run_argument, "run=%s", hooks_run);
	snprintf(copy, sizeof copy, "%s", more ? more : "");
	CHECK(slurm_spank_init(NULL, more ? 2 : 1, argv) == ESPANK_SUCCESS);
}

void hook_init_post_opt(void)
{
	CHECK(slurm_spank_init_post_opt(NULL, 0, NULL) == ESPANK_SUCCESS);
}

void hook_post_fork(void)
{
	CHECK(slurm_spank_task_post_fork(NULL, 0, NULL) == ESPANK_SUCCESS);
}

void hook_task_exit(void)
{
	CHECK(slurm_spank_task_exit(NULL, 0, NULL) == ESPANK_SUCCESS);
}

void hook_exit(void)
{
	CHECK(slurm_spank_exit(NULL, 0, NULL) == ESPANK_SUCCESS);
}

const char *hooks_path(const char *below)
{
	static char paths[4][512];
	static unsigned turn;
	char *path = paths[turn++ % 4];

	snprintf(path, sizeof paths[0], "%s/%s", hooks_run, below);
	return path;
}

static int list(void)
{
	DIR *dir = opendir(hooks_path("n1/steps"));
	int n = 0;

	step_name[0] = '\0';
	for (struct dirent *e; dir && (e = readdir(dir));)
		if (strcmp(e->d_name, ".") != 0 && strcmp(e->d_name, "..") != 0) {
			snprintf(step_name, sizeof step_name, "%s", e->d_name);
			n++;
		}
	if (dir)
		closedir(dir);
	return n;
}

int hooks_count(void)
{
	return list();
}

const char *hooks_step_name(void)
{
	return step_name;
}

const char *hooks_step_file(void)
{
	static char text[1 << 17];
	char below[300];
	FILE *file;
	size_t n = 0;

	CHECK(list() <= 1);
	snprintf(below, sizeof below, "n1/steps/%s", step_name);
	file = *step_name ? fopen(hooks_path(below), "r") : NULL;
	if (file) {
		n = fread(text, 1, sizeof text - 1, file);
		fclose(file);
	}
	text[n] = '\0';
	return text;
}

void hooks_put(const char *below, const char *text)
{
	int fd = open(hooks_path(below), O_WRONLY | O_CREAT | O_TRUNC, 0600);

	CHECK(write(fd, text, strlen(text)) == (ssize_t)strlen(text));
	close(fd);
}

int hooks_fds(void)
{
	DIR *dir = opendir("/proc/self/fd");
	int n = 0;

	while (dir && readdir(dir))
		n++;
	closedir(dir);
	return n;
}
