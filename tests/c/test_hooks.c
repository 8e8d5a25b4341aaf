/* The hooks in slurmstepd, on a played Slurm: what is written, and what happens when it cannot be. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "faults.h"
#include "hooks.h"
#include "proc.h"
#include "spool.h"
#include "step.h"

static char head[512];		/* job to boot, as they have to be in a file of fake_step() */

static unsigned long long started(pid_t pid)
{
	int proc = open("/proc", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	unsigned long long start = 0;

	CHECK(proc_start(proc, pid, &start));
	close(proc);
	return start;
}

static const char *heading(uint32_t step)
{
	int proc = open("/proc", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	char boot[64] = "";

	CHECK(proc_boot(proc, boot, sizeof boot));
	CHECK(strlen(boot) == 36);
	close(proc);
	snprintf(head, sizeof head, "ladon-step 1\njob 42\nstep %" PRIu32 "\nuid 1000\npid %d\nstart %llu\nboot %s\n",
		 step, getpid(), started(getpid()), boot);
	return head;
}

/* The file of `step` begins as it has to, and goes on with `rest` where that is not NULL. */
static void check_file(uint32_t step, const char *rest)
{
	const char *text = hooks_step_file(), *wanted = heading(step);
	bool begins = strncmp(text, wanted, strlen(wanted)) == 0;

	CHECK(begins, "%s", text);
	if (begins && rest)
		CHECK_TEXT(text + strlen(wanted), rest);
}

static void whole_step(void)
{
	hook_init_post_opt();
	hook_post_fork();
	hook_task_exit();
	hook_exit();
}

/* What a reader relies on: nothing there, or a file that begins and ends as it should. */
static void check_whole_or_absent(void)
{
	const char *text = hooks_step_file();
	size_t n = strlen(text);

	CHECK(hooks_step_name()[0] != '.', "%s", hooks_step_name());
	if (hooks_step_name()[0] == '\0')
		return;
	CHECK(n > 0 && text[n - 1] == '\n', "%s", text);
	check_file(0, NULL);
}

static void test_a_step_is_written(void)
{
	char wanted[1024], name[64];

	hooks_begin();
	hook_init(NULL);
	hook_init_post_opt();
	snprintf(wanted, sizeof wanted, "%snodelist n[1-2]\nenv_job 42\ngpus 0,1\ngpus_from step\nntasks 1\n",
		 heading(0));
	CHECK_TEXT(hooks_step_file(), wanted);
	snprintf(name, sizeof name, "42.0.%d", getpid());
	CHECK_TEXT(hooks_step_name(), name);
	hook_post_fork();
	snprintf(wanted + strlen(wanted), 100, "task 0 %d %llu\n", getpid(), started(getpid()));
	CHECK_TEXT(hooks_step_file(), wanted);
	CHECK_TEXT(fake.told, "");
}

static void test_a_process_name_cannot_shift_its_start_time(void)
{
	unsigned long long before = started(getpid());

	CHECK(before > 0);
	CHECK(prctl(PR_SET_NAME, "a) R 1 (b") == 0);
	CHECK(started(getpid()) == before);
}

static void test_S17_special_ids_are_unsigned(void)
{
	char name[64];

	hooks_begin();
	fake.number[PORT_JOB] = UINT32_MAX - 1;
	fake.number[PORT_STEP] = LADON_STEP_BATCH;
	hook_init(NULL);
	hook_init_post_opt();
	snprintf(name, sizeof name, "4294967294.4294967291.%d", getpid());
	CHECK(strstr(hooks_step_file(), "\njob 4294967294\nstep 4294967291\n") != NULL);
	CHECK_TEXT(hooks_step_name(), name);
}

static void test_S18_extern_step_has_no_environment_and_no_task(void)
{
	hooks_begin();
	fake.env[0] = NULL;
	fake.number[PORT_STEP] = UINT32_C(0xfffffffc);
	fake.task.id = -1;		/* and a pid that is somebody's */
	hook_init(NULL);
	hook_init_post_opt();
	hook_post_fork();
	fake.task = LADON_TASK_NONE;
	hook_post_fork();
	fake.has_task = false;
	hook_post_fork();
	hook_task_exit();
	check_file(UINT32_C(0xfffffffc), "ntasks 1\n");
}

static void test_S20_a_task_without_a_pid_is_left_out(void)
{
	hooks_begin();
	hook_init(NULL);
	hook_init_post_opt();
	for (pid_t pid = -1; pid <= 0; pid++) {
		fake.task.pid = pid;
		hook_post_fork();
	}
	fake.task.pid = INT32_MAX;	/* no such process: no start time, no line */
	hook_post_fork();
	CHECK(strstr(hooks_step_file(), "task ") == NULL);
}

static void test_what_Slurm_does_not_give_is_left_out(void)
{
	hooks_begin();
	fake.env[0] = NULL;
	fake.has[PORT_UID] = fake.has[PORT_LOCAL_TASKS] = false;
	hook_init(NULL);
	hook_init_post_opt();
	CHECK(strstr(hooks_step_file(), "uid") == NULL && strstr(hooks_step_file(), "ntasks") == NULL);
}

static void test_without_ids_there_is_no_file(void)
{
	for (int what = PORT_JOB; what <= PORT_STEP; what++) {
		hooks_begin();
		fake.has[what] = false;
		hook_init(NULL);
		whole_step();
		CHECK(hooks_count() == 0);
	}
}

static void test_S41_an_odd_environment_is_left_out_whole(void)
{
	static const char *const odd[] = {
		"SLURM_JOB_ID=1\nuid 0", "SLURM_JOB_ID=", "SLURM_JOB_ID=x", "SLURM_JOB_ID=-1", "SLURM_JOB_ID=0",
		"SLURM_JOB_ID=4294967296", "SLURM_JOB_ID=99999999999999999999999", "SLURM_STEP_NODELIST=n1\n",
		"SLURM_STEP_NODELIST=\xff", "SLURM_STEP_NODELIST=", "SLURM_STEP_GPUS=\x01", "SLURM_JOB_SLUID=\t",
	};

	for (size_t i = 0; i < sizeof odd / sizeof *odd; i++) {
		hooks_begin();
		fake.env[0] = odd[i];
		fake.env[1] = NULL;
		hook_init(NULL);
		hook_init_post_opt();
		check_file(0, "ntasks 1\n");
		hook_exit();
	}
}

/* Slurm gives a batch script SLURM_JOB_GPUS alone. */
static void test_S41_a_batch_script_does_not_say_what_its_gpus_are(void)
{
	hooks_begin();
	fake.number[PORT_STEP] = LADON_STEP_BATCH;
	fake.env[0] = "SLURM_STEP_GPUS=7";
	fake.env[1] = NULL;
	hook_init(NULL);
	hook_init_post_opt();
	CHECK(strstr(hooks_step_file(), "gpus") == NULL);
	hooks_begin();
	fake.number[PORT_STEP] = LADON_STEP_BATCH;
	fake.env[0] = "SLURM_STEP_GPUS=7";
	fake.env[1] = "SLURM_JOB_GPUS=0";
	fake.env[2] = NULL;
	hook_init(NULL);
	hook_init_post_opt();
	CHECK(strstr(hooks_step_file(), "\ngpus 0\ngpus_from job\n") != NULL);
}

static void test_a_long_value_is_whole_or_left_out(void)
{
	static char list[STEP_VALUE_MAX + 32];

	for (int more = 0; more < 2; more++) {
		hooks_begin();
		memset(list, 'n', sizeof list);
		memcpy(list, "SLURM_STEP_NODELIST=", 20);
		list[20 + STEP_VALUE_MAX + more] = '\0';
		fake.env[0] = list;
		fake.env[1] = NULL;
		hook_init(NULL);
		hook_init_post_opt();
		CHECK((strstr(hooks_step_file(), "\nnodelist nnnn") != NULL) == !more);
		hook_exit();
	}
}

static void test_S40_a_het_component_knows_its_place(void)
{
	static const char *const env[] = { "SLURM_HET_SIZE=2", "SLURM_JOB_ID_HET_GROUP_0=41",
		"SLURM_JOB_ID_HET_GROUP_1=42", "SLURM_JOB_ID=41", "SLURM_JOB_NUM_NODES=3" };

	hooks_begin();
	memcpy(fake.env, env, sizeof env);
	hook_init(NULL);
	hook_init_post_opt();
	CHECK(strstr(hooks_step_file(), "\nenv_job 41\njob_nodes 3\nhet_offset 1\n") != NULL);
}

static void test_S13_S16_the_callback_is_kept_and_may_come_twice(void)
{
	hooks_begin();
	hook_init(NULL);
	CHECK(fake.take("cancel,window=10m", false));
	CHECK(fake.take("cancel,window=10m", false));
	hook_init_post_opt();
	CHECK(strstr(hooks_step_file(), "\noption cancel,window=10m\noption_from srun\n") != NULL);
}

static void test_S11_a_bare_option(void)
{
	static const char *const forms[] = { NULL, "", "(null)" };

	for (int i = 0; i < 3; i++) {
		hooks_begin();
		hook_init(NULL);
		CHECK(fake.take(NULL, false) && fake.take(forms[i], false));
		hook_init_post_opt();
		CHECK(strstr(hooks_step_file(), "\noption default\noption_from srun\n") != NULL);
		hook_exit();
	}
}

static void test_where_an_option_came_from(void)
{
	hooks_begin();
	fake.env[3] = "SLURM_SPANK__SLURM_SPANK_OPTION_ladon_ladon=cancel";
	hook_init(NULL);
	fake.take("cancel", false);
	hook_init_post_opt();
	CHECK(strstr(hooks_step_file(), "\noption cancel\noption_from inherited\n") != NULL);
	hook_exit();
	fake.take("off", false);
	hook_init_post_opt();
	CHECK(strstr(hooks_step_file(), "\noption off\noption_from srun\n") != NULL);
	CHECK_TEXT(fake.told, "");
}

static void test_S07_a_value_this_node_does_not_allow_drops_and_says_so_once(void)
{
	static const char line[] = "ladon: inherited --ladon=cancel: not allowed here; "
		"allowed: off, observe; here it counts as observe\n";

	hooks_begin();
	fake.number[PORT_STEP] = LADON_STEP_BATCH;
	hook_init("allow=off,observe");
	CHECK(fake.take("cancel", false));
	hook_init_post_opt();
	CHECK(strstr(hooks_step_file(), "\noption observe\noption_from sbatch\n") != NULL);
	CHECK_TEXT(fake.told, "");
	hook_post_fork();
	CHECK_TEXT(fake.told, line);
	fake.number[PORT_GLOBAL_TASK] = 1;	/* another task of the step */
	hook_post_fork();
	CHECK_TEXT(fake.told, line);
	CHECK_TEXT(fake.refused, "");
}

/* Slurm 22.05 does so with sbatch --export=NONE; every other step has what the callback gave it, or none. */
static void test_S12_a_batch_step_that_gets_no_option_has_the_one_of_its_environment(void)
{
	static const uint32_t step[] = { 0, LADON_STEP_EXTERN, LADON_STEP_BATCH, LADON_STEP_BATCH };
	static const char *wanted[] = { NULL, NULL, "\noption off\noption_from sbatch\n", "\noption cancel\n" };

	for (int i = 0; i < 4; i++) {
		hooks_begin();
		fake.number[PORT_STEP] = step[i];
		fake.env[0] = STEP_OPTION_ENV "=off";
		fake.env[1] = NULL;
		hook_init(NULL);
		if (i == 3)
			CHECK(fake.take("cancel", false));
		hook_init_post_opt();
		if (wanted[i])
			CHECK(strstr(hooks_step_file(), wanted[i]) != NULL, "%s", hooks_step_file());
		else
			CHECK(strstr(hooks_step_file(), "option") == NULL, "%s", hooks_step_file());
	}
}

static void test_a_window_above_the_sites_most_is_lowered_here_too_in_silence(void)
{
	hooks_begin();
	fake.number[PORT_STEP] = LADON_STEP_BATCH;
	hook_init("window_most=1h");
	CHECK(fake.take("cancel,window=2h", false));
	whole_step();
	CHECK(strstr(hooks_step_file(), "\noption cancel,window=1h\n") != NULL);
	CHECK_TEXT(fake.told, "");
}

static void test_S04_no_folder_nothing_done(void)
{
	hooks_begin();
	unsetenv("SLURMD_NODENAME");
	hook_init(NULL);
	whole_step();
	mkdir(hooks_path("steps"), 0700);	/* so that "." would be one */
	mkdir(hooks_path(".hidden"), 0755);
	mkdir(hooks_path(".hidden/steps"), 0700);
	static const char *const names[] = { "", "n2", ".", "..", "n1/../n1", "n1/", "./n1", ".hidden" };
	for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
		setenv("SLURMD_NODENAME", names[i], 1);
		whole_step();
	}
	CHECK(hooks_count() == 0);
	CHECK(rmdir(hooks_path("steps")) == 0 && rmdir(hooks_path(".hidden/steps")) == 0);
	CHECK_TEXT(fake.told, "");
}

static void test_S04_what_others_can_write_is_not_used(void)
{
	static const char *const folders[] = { "", "n1", "n1/steps" };

	for (int i = 0; i < 3; i++)
		for (int bit = 0; bit < 2; bit++) {
			hooks_begin();
			hook_init(NULL);
			chmod(hooks_path(folders[i]), bit ? 0720 : 0702);
			whole_step();
			CHECK(hooks_count() == 0, "%s", folders[i]);
		}
}

static void test_S04_links_are_not_followed(void)
{
	static const char *const folders[] = { "n1", "n1/steps" };

	for (int i = 0; i < 2; i++) {
		hooks_begin();
		hook_init(NULL);
		CHECK(rename(hooks_path(folders[i]), hooks_path("moved")) == 0);
		CHECK(symlink(hooks_path("moved"), hooks_path(folders[i])) == 0);
		whole_step();
		CHECK(hooks_count() == 0);
	}
}

static void test_S04_somebody_elses_folder_is_not_used(void)
{
	struct spool spool;

	hooks_begin();
	CHECK(spool_open(&spool, hooks_run, "n1", geteuid()));
	CHECK(!spool_write(&spool, 42, 0, 1, geteuid() + 1, "x\n", 2));
	spool_close(&spool);
	CHECK(!spool_open(&spool, hooks_run, "n1", geteuid() + 1));
	CHECK(hooks_count() == 0);
}

static void test_S04_any_system_call_may_fail(void)
{
	int calls = 1;

	for (int n = 1; n <= calls; n++) {
		int before;

		hooks_begin();
		hook_init(NULL);
		hooks_put("n1/notices/x", "");
		before = hooks_fds();
		faults_arm(n, n % 2 ? ENOSPC : EIO);
		whole_step();
		calls = n == 1 ? 100 : calls;
		if (faults_seen() < n)
			calls = n;		/* that many there are */
		faults_arm(0, 0);
		CHECK(hooks_fds() == before, "call %d", n);	/* S42 */
		check_whole_or_absent();
		CHECK_TEXT(fake.told, "");
	}
	CHECK(calls > 20 && calls < 100, "%d", calls);
}

static void test_S04_a_full_disk_leaves_no_half_file_and_no_half_line(void)
{
	signal(SIGXFSZ, SIG_IGN);
	for (rlim_t room = 0; room < 300; room++) {
		struct rlimit limit = { .rlim_cur = room, .rlim_max = RLIM_INFINITY };

		hooks_begin();
		hook_init(NULL);
		setrlimit(RLIMIT_FSIZE, &limit);
		whole_step();
		limit.rlim_cur = RLIM_INFINITY;
		setrlimit(RLIMIT_FSIZE, &limit);
		check_whole_or_absent();
	}
}

static void test_a_dead_stepds_temporary_file_is_replaced(void)
{
	char below[64];

	hooks_begin();
	snprintf(below, sizeof below, "n1/steps/.42.0.%d", getpid());
	hooks_put(below, "rubbish");
	hook_init(NULL);
	hook_init_post_opt();
	CHECK(hooks_count() == 1);
	check_file(0, NULL);
}

static void test_a_file_does_not_grow_without_end(void)
{
	struct stat st;
	char below[300];

	hooks_begin();
	hook_init(NULL);
	hook_init_post_opt();
	for (fake.task.id = 0; fake.task.id < 6000; fake.task.id++)
		hook_post_fork();
	check_whole_or_absent();
	snprintf(below, sizeof below, "n1/steps/%s", hooks_step_name());
	CHECK(stat(hooks_path(below), &st) == 0 && st.st_size <= SPOOL_FILE_MAX && st.st_size > 60000);
}

static int descriptor_of_the_step_file(void)
{
	char link[64], target[512];

	for (int fd = 3; fd < 64; fd++) {
		snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
		ssize_t n = readlink(link, target, sizeof target - 1);

		target[n > 0 ? n : 0] = '\0';
		if (strstr(target, "/steps/42.0."))
			return fd;
	}
	return -1;
}

static void test_S42_a_file_closed_under_us_is_not_written_to(void)
{
	int ours, victim;

	hooks_begin();
	hook_init(NULL);
	hook_init_post_opt();
	ours = descriptor_of_the_step_file();
	victim = open(hooks_path("victim"), O_RDWR | O_CREAT | O_APPEND, 0600);
	CHECK(ours >= 0 && dup2(victim, ours) == ours);
	hook_post_fork();
	CHECK(lseek(victim, 0, SEEK_END) == 0);
}

static void test_S27_a_file_the_daemon_took_away_is_not_missed(void)
{
	char below[300];

	hooks_begin();
	hook_init(NULL);
	hook_init_post_opt();
	hooks_step_file();
	snprintf(below, sizeof below, "n1/steps/%s", hooks_step_name());
	CHECK(unlink(hooks_path(below)) == 0);
	hook_post_fork();
	hook_task_exit();
	hook_exit();
	CHECK(hooks_count() == 0);
}

static void test_S27_the_end_leaves_the_file(void)
{
	hooks_begin();
	hook_init(NULL);
	whole_step();
	CHECK(hooks_count() == 1);
}

static void test_S37_a_second_exit_closes_nothing_of_somebody_elses(void)
{
	int others[8];

	hooks_begin();
	hook_init(NULL);
	whole_step();
	for (int i = 0; i < 8; i++)
		others[i] = open("/dev/null", O_RDONLY);
	hook_exit();
	for (int i = 0; i < 8; i++)
		CHECK(fcntl(others[i], F_GETFD) >= 0);
}

static void test_S19_elsewhere_there_is_nothing_to_do(void)
{
	hooks_begin();
	fake.place = PORT_ELSEWHERE;
	hook_init(NULL);
	whole_step();
	CHECK(fake.registered == 0);
	CHECK(hooks_count() == 0);
}

int main(void)
{
	static const struct check_test tests[] = {
		TEST(test_a_step_is_written),
		TEST(test_a_process_name_cannot_shift_its_start_time),
		TEST(test_S17_special_ids_are_unsigned),
		TEST(test_S18_extern_step_has_no_environment_and_no_task),
		TEST(test_S20_a_task_without_a_pid_is_left_out),
		TEST(test_what_Slurm_does_not_give_is_left_out),
		TEST(test_without_ids_there_is_no_file),
		TEST(test_S41_an_odd_environment_is_left_out_whole),
		TEST(test_S41_a_batch_script_does_not_say_what_its_gpus_are),
		TEST(test_a_long_value_is_whole_or_left_out),
		TEST(test_S40_a_het_component_knows_its_place),
		TEST(test_S13_S16_the_callback_is_kept_and_may_come_twice),
		TEST(test_S11_a_bare_option),
		TEST(test_where_an_option_came_from),
		TEST(test_S07_a_value_this_node_does_not_allow_drops_and_says_so_once),
		TEST(test_S12_a_batch_step_that_gets_no_option_has_the_one_of_its_environment),
		TEST(test_a_window_above_the_sites_most_is_lowered_here_too_in_silence),
		TEST(test_S04_no_folder_nothing_done),
		TEST(test_S04_what_others_can_write_is_not_used),
		TEST(test_S04_links_are_not_followed),
		TEST(test_S04_somebody_elses_folder_is_not_used),
		TEST(test_S04_any_system_call_may_fail),
		TEST(test_S04_a_full_disk_leaves_no_half_file_and_no_half_line),
		TEST(test_a_dead_stepds_temporary_file_is_replaced),
		TEST(test_a_file_does_not_grow_without_end),
		TEST(test_S42_a_file_closed_under_us_is_not_written_to),
		TEST(test_S27_a_file_the_daemon_took_away_is_not_missed),
		TEST(test_S27_the_end_leaves_the_file),
		TEST(test_S37_a_second_exit_closes_nothing_of_somebody_elses),
		TEST(test_S19_elsewhere_there_is_nothing_to_do),
	};
	return check_run(tests, sizeof tests / sizeof *tests);
}
