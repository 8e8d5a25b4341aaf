/* --ladon in srun, sbatch and salloc. Slurm's own order of calls was seen on 22.05: the inherited
 * value first, the command line's after it; in sbatch, #SBATCH before both. */
#include <stdlib.h>

#include "hooks.h"

#define INHERITED "SLURM_SPANK__SLURM_SPANK_OPTION_ladon_ladon"
#define BAD_KILL "--ladon=kill: not one of off, observe, notify, cancel, requeue"

static void begin(const char *inherited, const char *argument)
{
	hooks_begin();
	fake.place = PORT_LOGIN;
	if (inherited)
		setenv(INHERITED, inherited, 1);
	else
		unsetenv(INHERITED);
	hook_init(argument);
	CHECK(fake.registered == 1);		/* S08: in every context */
}

static void test_a_good_value_is_taken_in_silence(void)
{
	begin(NULL, NULL);
	CHECK(fake.take("cancel,window=10m", true));
	CHECK(fake.take(NULL, true));
	hook_init_post_opt();
	CHECK_TEXT(fake.told, "");
	CHECK_TEXT(fake.refused, "");
	CHECK(hooks_count() == 0);		/* S19: files are the stepd's */
}

static void test_a_bad_value_is_refused_with_the_right_ones(void)
{
	begin(NULL, NULL);
	CHECK(!fake.take("kill", true));
	CHECK_TEXT(fake.refused, "ladon: " BAD_KILL "\n");
}

static void test_what_is_not_allowed_is_refused(void)
{
	begin(NULL, "allow=off,observe,notify");
	CHECK(!fake.take("cancel", true));
	CHECK_TEXT(fake.refused, "ladon: --ladon=cancel: not allowed here; allowed: off, observe, notify\n");
}

static void test_an_inherited_value_never_fails(void)
{
	begin("kill", NULL);
	CHECK(fake.take("kill", true));
	hook_init_post_opt();
	CHECK_TEXT(fake.told, "ladon: inherited " BAD_KILL "; here it counts as observe\n");
	CHECK_TEXT(fake.refused, "");
}

static void test_an_inherited_value_no_longer_allowed_drops(void)
{
	begin("cancel", "allow=off,observe,notify");
	CHECK(fake.take("cancel", true));
	hook_init_post_opt();
	CHECK_TEXT(fake.told, "ladon: inherited --ladon=cancel: not allowed here; allowed: off, observe, "
		   "notify; here it counts as notify\n");
}

static void test_a_window_above_the_sites_most_is_told_once_where_it_was_typed(void)
{
	begin(NULL, "window_most=1h");
	CHECK(fake.take("cancel,window=2h", true));
	hook_init_post_opt();
	CHECK_TEXT(fake.told, "ladon: --ladon=cancel,window=2h: window=2h: the most here is 1h; here it counts as "
		   "cancel,window=1h\n");
	CHECK_TEXT(fake.refused, "");
}

static void test_a_typed_value_replaces_an_inherited_one_whole(void)
{
	begin("kill", NULL);
	CHECK(fake.take("kill", true));
	CHECK(fake.take("", true));
	hook_init_post_opt();
	CHECK_TEXT(fake.told, "");
	CHECK_TEXT(fake.refused, "");
}

static void test_a_typed_bad_value_is_refused_though_the_same_is_inherited(void)
{
	begin("kill", NULL);
	CHECK(fake.take("kill", true));
	CHECK(!fake.take("kill", true));
	CHECK_TEXT(fake.refused, "ladon: " BAD_KILL "\n");
}

static void test_a_bad_sbatch_line_is_refused_before_a_good_inherited_value(void)
{
	begin("off", NULL);
	CHECK(!fake.take("kill", true));
	CHECK_TEXT(fake.refused, "ladon: " BAD_KILL "\n");
}

static void test_S11_an_inherited_bare_option(void)
{
	begin("(null)", NULL);
	CHECK(fake.take("", true));
	hook_init_post_opt();
	CHECK_TEXT(fake.told, "");
}

static void test_S40_each_het_component_is_judged_for_itself(void)
{
	begin("kill", NULL);
	for (int component = 0; component < 2; component++) {
		CHECK(fake.take("kill", true));
		hook_init_post_opt();
	}
	CHECK_TEXT(fake.told, "ladon: inherited " BAD_KILL "; here it counts as observe\n"
		   "ladon: inherited " BAD_KILL "; here it counts as observe\n");
	CHECK_TEXT(fake.refused, "");
}

static void test_an_unknown_argument_is_only_logged(void)
{
	static const char *const arguments[] = { "socket=/x", "run=relative", "allow=", "allow=kill", "",
		"window_most=", "grace_most=1w" };

	for (size_t i = 0; i < sizeof arguments / sizeof *arguments; i++) {
		char line[128];

		begin(NULL, arguments[i]);
		snprintf(line, sizeof line, "ladon: plugstack.conf: %s: not understood, ignored\n", arguments[i]);
		CHECK_TEXT(fake.debug, line);
		CHECK(fake.take("requeue", true));
	}
}

int main(void)
{
	static const struct check_test tests[] = {
		TEST(test_a_good_value_is_taken_in_silence),
		TEST(test_a_bad_value_is_refused_with_the_right_ones),
		TEST(test_what_is_not_allowed_is_refused),
		TEST(test_an_inherited_value_never_fails),
		TEST(test_an_inherited_value_no_longer_allowed_drops),
		TEST(test_a_window_above_the_sites_most_is_told_once_where_it_was_typed),
		TEST(test_a_typed_value_replaces_an_inherited_one_whole),
		TEST(test_a_typed_bad_value_is_refused_though_the_same_is_inherited),
		TEST(test_a_bad_sbatch_line_is_refused_before_a_good_inherited_value),
		TEST(test_S11_an_inherited_bare_option),
		TEST(test_S40_each_het_component_is_judged_for_itself),
		TEST(test_an_unknown_argument_is_only_logged),
	};
	return check_run(tests, sizeof tests / sizeof *tests);
}
