/* The daemon's notice on its way to the user, and contain_spank. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "hooks.h"

static char notice[64];

/* A step 42.0 that is registered; `text`, if any, is its notice. */
static void begin(const char *text)
{
	hooks_begin();
	snprintf(notice, sizeof notice, "n1/notices/42.0.%d", getpid());
	hook_init(NULL);
	hook_init_post_opt();
	if (text)
		hooks_put(notice, text);
}

static void test_every_line_is_printed_with_its_prefix(void)
{
	begin("step 42.0 was cancelled\n\nno progress for 30 minutes");
	hook_task_exit();
	CHECK_TEXT(fake.told, "ladon: step 42.0 was cancelled\nladon: no progress for 30 minutes\n");
	CHECK(fake.flushed == 1);
}

static void test_no_notice_no_word(void)
{
	begin(NULL);
	hook_task_exit();
	CHECK_TEXT(fake.told, "");
	CHECK(fake.flushed == 0);	/* S23: no step but a cancelled one waits */
}

static void test_only_the_first_local_task_prints(void)
{
	begin("x");
	fake.task.id = 1;
	hook_task_exit();
	fake.task = LADON_TASK_NONE;
	hook_task_exit();
	fake.has_task = false;
	hook_task_exit();
	CHECK_TEXT(fake.told, "");
}

static void test_the_pid_of_a_dead_task_is_not_needed(void)
{
	begin("x");
	fake.task.pid = -1;
	hook_task_exit();
	CHECK_TEXT(fake.told, "ladon: x\n");
}

static void test_control_characters_are_not_printed(void)
{
	begin("a\033[2Jb\tc\x7f \xc3\xa9");
	hook_task_exit();
	CHECK_TEXT(fake.told, "ladon: a?[2Jb?c? \xc3\xa9\n");
}

static void test_a_format_in_it_is_only_text(void)
{
	begin("100 %s %n of the window");
	hook_task_exit();
	CHECK_TEXT(fake.told, "ladon: 100 %s %n of the window\n");
}

static void test_a_huge_one_is_cut(void)
{
	static char huge[5000];

	memset(huge, 'x', sizeof huge - 1);
	begin(huge);
	hook_task_exit();
	CHECK(strlen(fake.told) == strlen("ladon: ") + 1024 + 1);
}

static void test_a_fifo_does_not_hold_up_the_end_of_a_step(void)
{
	begin(NULL);
	CHECK(mkfifo(hooks_path(notice), 0600) == 0);
	hook_task_exit();
	CHECK_TEXT(fake.told, "");
}

static void test_a_link_is_not_followed(void)
{
	begin(NULL);
	hooks_put("secret", "root's");
	CHECK(symlink(hooks_path("secret"), hooks_path(notice)) == 0);
	hook_task_exit();
	CHECK_TEXT(fake.told, "");
}

static void test_what_others_can_write_is_not_printed(void)
{
	begin("forged");
	chmod(hooks_path(notice), 0622);
	hook_task_exit();
	chmod(hooks_path(notice), 0600);
	chmod(hooks_path("n1/notices"), 0777);
	hook_task_exit();
	CHECK_TEXT(fake.told, "");
}

static void test_a_step_that_is_not_registered_has_none(void)
{
	hooks_begin();
	hook_init(NULL);
	hook_task_exit();
	CHECK_TEXT(fake.told, "");
}

static pid_t task_pid;		/* as Slurm has it: of the host */
static bool apart, hidden;	/* mounts of its own; the run directory and /proc are covered there */

/* What Slurm 24.05 does with contain_spank: another pid, a copied fd table, shared memory, and
 * the job's own mounts. */
static int contained(void *unused)
{
	(void)unused;
	apart = mount("none", "/", NULL, MS_REC | MS_PRIVATE, NULL) == 0;	/* not in a chroot */
	hidden = apart && mount("none", hooks_run, "tmpfs", 0, NULL) == 0 && mount("none", "/proc", "tmpfs", 0, NULL) == 0;
	fake.task.pid = task_pid;
	hook_post_fork();
	hook_task_exit();
	return check_failures;
}

static void test_S24_in_a_clone_and_another_namespace(void)
{
	static char stack[1 << 20] __attribute__((aligned(16)));
	const int spaces = geteuid() == 0 ? CLONE_NEWNS | CLONE_NEWPID : 0;
	char line[64];
	int status = 0;
	pid_t clone_pid;

	begin("said from inside");
	task_pid = getpid();
	clone_pid = clone(contained, stack + sizeof stack, CLONE_VM | spaces | SIGCHLD, NULL);
	CHECK(clone_pid > 0 && waitpid(clone_pid, &status, 0) == clone_pid && status == 0);
	CHECK(hidden || !apart);
	snprintf(line, sizeof line, "\ntask 0 %d ", task_pid);
	CHECK(strstr(hooks_step_file(), line) != NULL, "%s", hooks_step_file());
	CHECK_TEXT(fake.told, "ladon: said from inside\n");
}

int main(void)
{
	static const struct check_test tests[] = {
		TEST(test_every_line_is_printed_with_its_prefix),
		TEST(test_no_notice_no_word),
		TEST(test_only_the_first_local_task_prints),
		TEST(test_the_pid_of_a_dead_task_is_not_needed),
		TEST(test_control_characters_are_not_printed),
		TEST(test_a_format_in_it_is_only_text),
		TEST(test_a_huge_one_is_cut),
		TEST(test_a_fifo_does_not_hold_up_the_end_of_a_step),
		TEST(test_a_link_is_not_followed),
		TEST(test_what_others_can_write_is_not_printed),
		TEST(test_a_step_that_is_not_registered_has_none),
		TEST(test_S24_in_a_clone_and_another_namespace),
	};
	return check_run(tests, sizeof tests / sizeof *tests);
}
