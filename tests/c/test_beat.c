/* The beat page as the plugin makes it: whose it is, how large, where, and what happens when it cannot be made. */
#define _GNU_SOURCE
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "beat.h"
#include "faults.h"
#include "hooks.h"

/* Root gives the page to the step's user; without root a test's user can only be itself. */
static void begin(uint32_t tasks)
{
	hooks_begin();
	fake.number[PORT_LOCAL_TASKS] = tasks;
	if (getuid() != 0)
		fake.number[PORT_UID] = getuid();
	hook_init(NULL);
}

static const char *page(void)
{
	char below[64];

	snprintf(below, sizeof below, "n1/beat/42.%u.%d", (unsigned)fake.number[PORT_STEP], getpid());
	return hooks_path(below);
}

/* Entries of n1/beat, hidden ones too. */
static int count(void)
{
	DIR *dir = opendir(hooks_path("n1/beat"));
	int n = 0;

	while (dir && readdir(dir))
		n++;
	if (dir)
		closedir(dir);
	return n - 2;
}

static void check_none(void)
{
	CHECK(count() == 0);
	CHECK_TEXT(fake.beat, "");
	CHECK(hooks_count() == 1, "the step's own file is there all the same");
	CHECK_TEXT(fake.told, "");
}

static void test_a_page_is_the_users_alone_and_has_a_slot_a_task(void)
{
	static const uint32_t tasks[] = { 0, 1, 64, 65, BEAT_TASKS_MOST };

	for (int i = 0; i < 5; i++) {
		uint32_t slots = tasks[i] > 64 ? tasks[i] : 64;
		struct stat st;

		begin(tasks[i]);
		hook_init_post_opt();
		CHECK(count() == 1);
		CHECK(lstat(page(), &st) == 0 && S_ISREG(st.st_mode));
		CHECK(st.st_uid == fake.number[PORT_UID] && (st.st_mode & 07777) == 0600 && st.st_nlink == 1);
		CHECK(st.st_size == (off_t)slots * BEAT_SLOT);
		CHECK(st.st_blocks * 512 >= st.st_size, "preallocated: a beat never meets a full disk");
		CHECK_TEXT(fake.beat, page());
		hook_exit();
	}
}

static void test_a_page_begins_as_zeros(void)
{
	static char zeros[4096], found[4096];
	int fd;

	begin(1);
	hook_init_post_opt();
	fd = open(page(), O_RDONLY);
	CHECK(read(fd, found, sizeof found) == sizeof found && memcmp(found, zeros, sizeof found) == 0);
	close(fd);
}

static void test_too_many_tasks_have_no_page(void)
{
	static const uint32_t tasks[] = { BEAT_TASKS_MOST + 1, UINT32_MAX };

	for (int i = 0; i < 2; i++) {
		begin(tasks[i]);
		hook_init_post_opt();
		check_none();
		hook_exit();
	}
}

static void test_S18_an_extern_step_and_one_of_nobody_have_none(void)
{
	begin(1);
	fake.number[PORT_STEP] = LADON_STEP_EXTERN;
	hook_init_post_opt();
	check_none();
	hook_exit();
	begin(1);
	fake.has[PORT_UID] = false;
	hook_init_post_opt();
	check_none();
}

static void test_an_inherited_page_is_forgotten_where_there_is_none(void)
{
	hooks_begin();
	unsetenv("SLURMD_NODENAME");	/* Ladon is not on this node */
	hook_init(NULL);
	hook_init_post_opt();
	CHECK_TEXT(fake.beat, "");
}

static void test_without_a_folder_of_roots_there_is_none(void)
{
	begin(1);
	CHECK(rmdir(hooks_path("n1/beat")) == 0);
	hook_init_post_opt();
	CHECK_TEXT(fake.beat, "");
	CHECK(hooks_count() == 1);
	hook_exit();
	for (int bit = 0; bit < 2; bit++) {
		begin(1);
		chmod(hooks_path("n1/beat"), bit ? 0775 : 01777);
		hook_init_post_opt();
		check_none();
		hook_exit();
	}
	begin(1);
	CHECK(rmdir(hooks_path("n1/beat")) == 0 && mkdir(hooks_path("else"), 0755) == 0);
	CHECK(symlink(hooks_path("else"), hooks_path("n1/beat")) == 0);
	hook_init_post_opt();
	CHECK_TEXT(fake.beat, "");
	CHECK(rmdir(hooks_path("else")) == 0, "a link is not followed");
}

static void test_what_is_in_its_place_is_replaced_and_never_written_to(void)
{
	char below[64];
	struct stat st;

	begin(1);
	hooks_put("victim", "root's own");
	snprintf(below, sizeof below, "n1/beat/.42.0.%d", getpid());
	CHECK(symlink(hooks_path("victim"), hooks_path(below)) == 0);
	CHECK(symlink(hooks_path("victim"), page()) == 0);
	hook_init_post_opt();
	CHECK(count() == 1);
	CHECK(lstat(page(), &st) == 0 && S_ISREG(st.st_mode) && st.st_size == 4096);
	CHECK(stat(hooks_path("victim"), &st) == 0 && st.st_size == 10 && st.st_uid == getuid());
}

static void test_a_folder_in_its_place_is_left_alone(void)
{
	char below[64];

	begin(1);
	snprintf(below, sizeof below, "n1/beat/.42.0.%d", getpid());
	CHECK(mkdir(hooks_path(below), 0700) == 0);
	hook_init_post_opt();
	CHECK_TEXT(fake.beat, "");
	CHECK(rmdir(hooks_path(below)) == 0);
	check_none();
}

static void test_S04_any_system_call_may_fail(void)
{
	int calls = 1;

	for (int n = 1; n <= calls; n++) {
		int before, errors[] = { ENOSPC, EIO, EPERM, EOPNOTSUPP };
		struct stat st;

		begin(2);
		before = hooks_fds();
		faults_arm(n, errors[n % 4]);
		hook_init_post_opt();
		hook_exit();
		calls = n == 1 ? 100 : calls;
		if (faults_seen() < n)
			calls = n;
		faults_arm(0, 0);
		CHECK(hooks_fds() == before, "call %d", n);
		CHECK(count() == (*fake.beat ? 1 : 0), "call %d: named where it is, and nothing left elsewhere", n);
		if (*fake.beat)
			CHECK(stat(fake.beat, &st) == 0 && st.st_size == 4096 && st.st_uid == fake.number[PORT_UID]);
	}
	CHECK(calls > 12 && calls < 100, "%d", calls);
}

static void test_a_path_that_is_too_long_has_no_page(void)
{
	static char run[BEAT_PATH_MAX + 8] = "run=/";
	char *argv[] = { run };
	int slurm_spank_init(spank_t sp, int argc, char **argv);

	begin(1);
	memset(run + 5, '/', sizeof run - 6);
	memcpy(run + sizeof run - 1 - strlen(hooks_run), hooks_run, strlen(hooks_run));
	CHECK(slurm_spank_init(NULL, 1, argv) == ESPANK_SUCCESS);
	hook_init_post_opt();
	check_none();
}

int main(void)
{
	static const struct check_test tests[] = {
		TEST(test_a_page_is_the_users_alone_and_has_a_slot_a_task),
		TEST(test_a_page_begins_as_zeros),
		TEST(test_too_many_tasks_have_no_page),
		TEST(test_S18_an_extern_step_and_one_of_nobody_have_none),
		TEST(test_an_inherited_page_is_forgotten_where_there_is_none),
		TEST(test_without_a_folder_of_roots_there_is_none),
		TEST(test_what_is_in_its_place_is_replaced_and_never_written_to),
		TEST(test_a_folder_in_its_place_is_left_alone),
		TEST(test_S04_any_system_call_may_fail),
		TEST(test_a_path_that_is_too_long_has_no_page),
	};
	return check_run(tests, sizeof tests / sizeof *tests);
}
