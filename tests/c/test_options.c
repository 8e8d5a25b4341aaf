/* --ladon=WORD[,KEY=VALUE...]: what is understood, what is refused and in which words. */
#include "check.h"
#include "options.h"

static void test_understood(void)
{
	static const struct { const char *text, *normal; } table[] = {
		{ "", "default" },
		{ "off", "off" },
		{ "CANCEL", "cancel" },
		{ "requeue,grace=5m", "requeue,grace=5m" },
		{ "window=10m", "default,window=10m" },
		{ "cancel,beat=Required,class=train,grace=0,window=1d",
		  "cancel,window=1d,grace=0,class=train,beat=required" },
		{ "notify,window=90,window=2h", "notify,window=2h" },
		{ "observe,window=366d", "observe,window=366d" },
		{ "cancel,signal=USR1", "cancel,signal=USR1" },
		{ "signal=sigint,beat=optional", "default,beat=optional,signal=INT" },
	};

	for (size_t i = 0; i < sizeof table / sizeof *table; i++) {
		char why[LADON_LINE_MAX] = "", normal[LADON_OPTION_MAX];
		struct ladon_option option;

		CHECK(option_parse(table[i].text, &option, why), "%s: %s", table[i].text, why);
		option_normal(&option, normal, sizeof normal);
		CHECK_TEXT(normal, table[i].normal);
	}
}

static void test_not_understood(void)
{
	static const struct { const char *text, *why; } table[] = {
		{ "kill", "not one of off, observe, notify, cancel, requeue" },
		{ "default", "not one of off, observe, notify, cancel, requeue" },
		{ ",", "not one of off, observe, notify, cancel, requeue" },
		{ "cancel,", ": not KEY=VALUE; the word comes first" },
		{ "cancel,off", "off: not KEY=VALUE; the word comes first" },
		{ "window=1m,cancel", "cancel: not KEY=VALUE; the word comes first" },
		{ "cancel,windw=10m", "windw=: not one of window=, grace=, class=, beat=, signal=" },
		{ "=", "=: not one of window=, grace=, class=, beat=, signal=" },
		{ "window=", "window=: not a duration such as 90, 90s, 10m, 2h or 1d" },
		{ "window=0", "window=0: not a duration such as 90, 90s, 10m, 2h or 1d" },
		{ "window=-1", "window=-1: not a duration such as 90, 90s, 10m, 2h or 1d" },
		{ "window=1.5h", "window=1.5h: not a duration such as 90, 90s, 10m, 2h or 1d" },
		{ "window=10min", "window=10min: not a duration such as 90, 90s, 10m, 2h or 1d" },
		{ "window=1w", "window=1w: not a duration such as 90, 90s, 10m, 2h or 1d" },
		{ "window=367d", "window=367d: not a duration such as 90, 90s, 10m, 2h or 1d" },
		{ "grace=99999999999", "grace=99999999999: not a duration such as 90, 90s, 10m, 2h or 1d" },
		{ "class=test", "class=test: not one of train, serve, interactive" },
		{ "beat=", "beat=: not one of required, optional" },
		{ "cancel,signal=KILL", "signal=KILL: not one of TERM, INT, HUP, QUIT, USR1, USR2" },
		{ "cancel,signal=STOP", "signal=STOP: not one of TERM, INT, HUP, QUIT, USR1, USR2" },
		{ "cancel,signal=SIG", "signal=SIG: not one of TERM, INT, HUP, QUIT, USR1, USR2" },
		{ "cancel,signal=10", "signal=10: not one of TERM, INT, HUP, QUIT, USR1, USR2" },
		{ "signal=", "signal=: not one of TERM, INT, HUP, QUIT, USR1, USR2" },
		{ "off,window", "window: not KEY=VALUE; the word comes first" },
	};

	for (size_t i = 0; i < sizeof table / sizeof *table; i++) {
		char why[LADON_LINE_MAX] = "";
		struct ladon_option option;

		CHECK(!option_parse(table[i].text, &option, why), "%s", table[i].text);
		CHECK_TEXT(why, table[i].why);
	}
}

static void test_a_huge_text_is_refused_not_cut(void)
{
	char text[5000], why[LADON_LINE_MAX] = "";
	struct ladon_option option;

	memset(text, 'x', sizeof text - 1);
	text[sizeof text - 1] = '\0';
	CHECK(!option_parse(text, &option, why));
	CHECK_TEXT(why, "longer than 255 characters");
}

static void test_S11_no_argument_in_all_its_forms(void)
{
	CHECK_TEXT(option_argument(NULL), "");
	CHECK_TEXT(option_argument(""), "");
	CHECK_TEXT(option_argument("(null)"), "");
	CHECK_TEXT(option_argument("off"), "off");
}

static unsigned mask(const char *list)
{
	unsigned found = 0;

	CHECK(option_allow(list, &found), "%s", list);
	return found;
}

static void test_allow(void)
{
	unsigned untouched = 7;

	CHECK(mask("off,observe,notify,cancel,requeue") == LADON_ALL_WORDS);
	CHECK(mask("observe") == 1u << LADON_OBSERVE);
	CHECK(!option_allow("", &untouched));
	CHECK(!option_allow("off,kill", &untouched));
	CHECK(!option_allow("default", &untouched));
	CHECK(untouched == 7);
}

static void test_nearest_is_the_smaller_one_first(void)
{
	CHECK(option_nearest(LADON_REQUEUE, mask("off,observe,notify")) == LADON_NOTIFY);
	CHECK(option_nearest(LADON_CANCEL, mask("off,requeue")) == LADON_OFF);
	CHECK(option_nearest(LADON_OFF, mask("observe,notify")) == LADON_OBSERVE);
	CHECK(option_nearest(LADON_OFF, mask("cancel,requeue")) == LADON_CANCEL);
	CHECK(option_nearest(LADON_NOTIFY, mask("notify")) == LADON_NOTIFY);
	CHECK(option_nearest(LADON_DEFAULT, mask("off")) == LADON_DEFAULT);
	CHECK(option_nearest(LADON_CANCEL, 0) == LADON_OBSERVE);
}

static struct ladon_site site;		/* without bounds but in the test of those */

static void take(const char *arg, const char *allow, bool fresh, const char *normal, const char *line)
{
	struct ladon_asked asked;
	char got[LADON_OPTION_MAX];
	bool taken;

	site.allowed = mask(allow);
	taken = option_take(&asked, arg, &site, fresh);

	CHECK(taken == (normal != NULL), "%s", arg);
	CHECK(asked.asked == taken);
	CHECK_TEXT(asked.line, line);
	if (!taken || !normal)
		return;
	option_normal(&asked.value, got, sizeof got);
	CHECK_TEXT(got, normal);
}

#define ALL "off,observe,notify,cancel,requeue"

static void test_fresh(void)
{
	take("cancel,window=10m", ALL, true, "cancel,window=10m", "");
	take(NULL, ALL, true, "default", "");
	take(NULL, "off", true, "default", "");
	take("kill", ALL, true, NULL,
	     "ladon: --ladon=kill: not one of off, observe, notify, cancel, requeue");
	take("kill", "off,observe", true, NULL, "ladon: --ladon=kill: not one of off, observe");
	take("cancel", "off,observe", true, NULL,
	     "ladon: --ladon=cancel: not allowed here; allowed: off, observe");
	take("cancel,window=x", ALL, true, NULL,
	     "ladon: --ladon=cancel,window=x: window=x: not a duration such as 90, 90s, 10m, 2h or 1d");
}

static void test_inherited_never_fails(void)
{
	take("kill", ALL, false, "observe", "ladon: inherited --ladon=kill: not one of off, observe, "
	     "notify, cancel, requeue; here it counts as observe");
	take("cancel,window=10m", "off,observe", false, "observe,window=10m", "ladon: inherited "
	     "--ladon=cancel,window=10m: not allowed here; allowed: off, observe; here it counts as "
	     "observe,window=10m");
	take("cancel,window=x", ALL, false, "observe", "ladon: inherited --ladon=cancel,window=x: "
	     "window=x: not a duration such as 90, 90s, 10m, 2h or 1d; here it counts as observe");
	take("kill", "notify,cancel", false, "notify", "ladon: inherited --ladon=kill: not one of "
	     "notify, cancel; here it counts as notify");
}

static void test_more_than_the_sites_most_counts_as_that(void)
{
	CHECK(option_most("12h", site.window_most, sizeof site.window_most));
	CHECK(option_most("90m", site.grace_most, sizeof site.grace_most));
	CHECK(!option_most("0", site.window_most, sizeof site.window_most));
	CHECK(!option_most("1w", site.window_most, sizeof site.window_most));
	take("cancel,window=12h,grace=5400", ALL, true, "cancel,window=12h,grace=5400", "");
	take("cancel,window=2d", ALL, true, "cancel,window=12h",
	     "ladon: --ladon=cancel,window=2d: window=2d: the most here is 12h; here it counts as cancel,window=12h");
	take("grace=91m,window=721m", ALL, false, "default,window=12h,grace=90m",
	     "ladon: inherited --ladon=grace=91m,window=721m: window=721m: the most here is 12h; grace=91m: "
	     "the most here is 90m; here it counts as default,window=12h,grace=90m");
	take("cancel,window=366d", "notify", false, "notify,window=12h",
	     "ladon: inherited --ladon=cancel,window=366d: not allowed here; allowed: notify; here it counts as "
	     "notify,window=12h");
	take("cancel,window=366d", "notify", true, NULL,
	     "ladon: --ladon=cancel,window=366d: not allowed here; allowed: notify");
	site = (struct ladon_site){ 0 };
}

static void test_a_message_is_one_printable_line(void)
{
	take("a\033[31m\nb", ALL, true, NULL,
	     "ladon: --ladon=a?[31m?b: not one of off, observe, notify, cancel, requeue");
	take("\xff\xfe=1", ALL, true, NULL,
	     "ladon: --ladon=?\?=1: ?\?=: not one of window=, grace=, class=, beat=, signal=");
}

static unsigned turn = 1;

static unsigned draw(unsigned n)
{
	turn = turn * 1103515245u + 12345u;	/* the same numbers in every run */
	return turn / 65536 % n;
}

/* Pieces that nearly make an option, in any order. What is understood means the same when its normal
 * form is read again; what is not has one reason. */
static void test_any_text_is_refused_or_has_one_meaning(void)
{
	static const char *const pieces[] = { "off", "cancel", "REQUEUE", "window", "grace", "class", "beat", "=",
		"=", ",", ",", "10", "m", "d", "train", "required", " ", "%s", "\xc3\xa9", "(null)", "999999999" };
	int understood = 0;

	for (int i = 0; i < 50000; i++) {
		char text[200] = "", why[LADON_LINE_MAX] = "", normal[LADON_OPTION_MAX], again[LADON_OPTION_MAX];
		struct ladon_option option;

		for (unsigned n = draw(9); n > 0; n--)
			strcat(text, pieces[draw(sizeof pieces / sizeof *pieces)]);
		if (!option_parse(text, &option, why)) {
			CHECK(*why && !strchr(why, '\n'), "%s", text);
			continue;
		}
		option_normal(&option, normal, sizeof normal);
		CHECK(option_parse(normal + (strncmp(normal, "default", 7) ? 0 : 7 + (normal[7] == ',')), &option, why));
		option_normal(&option, again, sizeof again);
		CHECK_TEXT(again, normal);
		understood++;
	}
	CHECK(understood > 100, "%d", understood);
}

int main(void)
{
	static const struct check_test tests[] = {
		TEST(test_understood),
		TEST(test_not_understood),
		TEST(test_a_huge_text_is_refused_not_cut),
		TEST(test_S11_no_argument_in_all_its_forms),
		TEST(test_allow),
		TEST(test_nearest_is_the_smaller_one_first),
		TEST(test_fresh),
		TEST(test_inherited_never_fails),
		TEST(test_more_than_the_sites_most_counts_as_that),
		TEST(test_a_message_is_one_printable_line),
		TEST(test_any_text_is_refused_or_has_one_meaning),
	};
	return check_run(tests, sizeof tests / sizeof *tests);
}
