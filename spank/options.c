#include "options.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

static const char *const words[] = { "off", "observe", "notify", "cancel", "requeue", "default", NULL };
static const char *const classes[] = { "train", "serve", "interactive", NULL };
static const char *const beats[] = { "required", "optional", NULL };
static const char *const signals[] = { "TERM", "INT", "HUP", "QUIT", "USR1", "USR2", NULL };

#define SHOWN "%.80s"		/* of it in a message */
#define DURATION_MAX_S (366L * 86400)

static int find(const char *const *list, const char *text)
{
	for (int i = 0; list[i]; i++)
		if (strcasecmp(list[i], text) == 0)
			return i;
	return -1;
}

/* "off, observe, notify": the words of `mask`. */
static void name_words(unsigned mask, char *buf, size_t size)
{
	size_t used = 0;

	buf[0] = '\0';
	for (int i = 0; i < LADON_DEFAULT; i++)
		if (mask & (1u << i))
			used += (size_t)snprintf(buf + used, size - used, "%s%s", used ? ", " : "", words[i]);
}

const char *option_argument(const char *arg)
{
	return !arg || strcmp(arg, "(null)") == 0 ? "" : arg;
}

/* N, Ns, Nm, Nh or Nd, in whole numbers, up to a year -> s; -1 where it is none. */
static long duration_of(const char *text)
{
	size_t digits = strspn(text, "0123456789");
	const char *unit = text + digits;
	long scale = 1;

	if (digits == 0 || digits > 9 || strlen(unit) > 1)
		return -1;
	if (*unit) {
		const char *at = strchr("smhd", *unit);
		static const long scales[] = { 1, 60, 3600, 86400 };

		if (!at)
			return -1;
		scale = scales[at - "smhd"];
	}
	long n = strtol(text, NULL, 10);

	return n > DURATION_MAX_S / scale ? -1 : n * scale;
}

/* One of at least `least` seconds, as it was written. */
static bool take_duration(const char *text, long least, char *out, size_t size)
{
	if (duration_of(text) < least)
		return false;
	snprintf(out, size, "%s", text);
	return true;
}

/* One KEY=VALUE. On failure `why` says what would have been right. */
static bool take_pair(const char *key, const char *value, struct ladon_option *out, char *why)
{
	static const char duration[] = "not a duration such as 90, 90s, 10m, 2h or 1d";
	const char *wanted = NULL;
	int at;

	if (strcasecmp(key, "window") == 0) {
		if (!take_duration(value, 1, out->window, sizeof out->window))
			wanted = duration;
	} else if (strcasecmp(key, "grace") == 0) {
		if (!take_duration(value, 0, out->grace, sizeof out->grace))
			wanted = duration;
	} else if (strcasecmp(key, "class") == 0) {
		if ((at = find(classes, value)) >= 0)
			out->class = classes[at];
		else
			wanted = "not one of train, serve, interactive";
	} else if (strcasecmp(key, "beat") == 0) {
		if ((at = find(beats, value)) >= 0)
			out->beat = beats[at];
		else
			wanted = "not one of required, optional";
	} else if (strcasecmp(key, "signal") == 0) {
		if ((at = find(signals, strncasecmp(value, "SIG", 3) == 0 ? value + 3 : value)) >= 0)
			out->signal = signals[at];
		else
			wanted = "not one of TERM, INT, HUP, QUIT, USR1, USR2";
	} else {
		snprintf(why, LADON_LINE_MAX, SHOWN "=: not one of window=, grace=, class=, beat=, signal=", key);
		return false;
	}
	if (wanted)
		snprintf(why, LADON_LINE_MAX, "%.20s=" SHOWN ": %s", key, value, wanted);
	return !wanted;
}

static bool take_word(const char *text, bool first, struct ladon_option *out, char *why)
{
	int at = find(words, text);
	char names[80];

	if (first && at >= 0 && at < LADON_DEFAULT) {
		out->word = (enum ladon_word)at;
		return true;
	}
	name_words(LADON_ALL_WORDS, names, sizeof names);
	if (first)
		snprintf(why, LADON_LINE_MAX, "not one of %s", names);
	else
		snprintf(why, LADON_LINE_MAX, SHOWN ": not KEY=VALUE; the word comes first", text);
	return false;
}

bool option_parse(const char *text, struct ladon_option *out, char *why)
{
	char copy[LADON_SAID_MAX], *rest = copy, *part;
	bool first = true;

	*out = (struct ladon_option){ .word = LADON_DEFAULT };
	if (*text == '\0')
		return true;
	if (strlen(text) >= sizeof copy) {
		snprintf(why, LADON_LINE_MAX, "longer than %d characters", LADON_SAID_MAX - 1);
		return false;
	}
	memcpy(copy, text, strlen(text) + 1);
	while ((part = strsep(&rest, ","))) {
		char *value = strchr(part, '=');

		if (value)
			*value++ = '\0';
		if (value ? !take_pair(part, value, out, why) : !take_word(part, first, out, why))
			return false;
		first = false;
	}
	return true;
}

void option_normal(const struct ladon_option *option, char *buf, size_t size)
{
	const struct { const char *key, *value; } pairs[] = {
		{ "window", option->window },
		{ "grace", option->grace },
		{ "class", option->class },
		{ "beat", option->beat },
		{ "signal", option->signal },
	};
	size_t used = (size_t)snprintf(buf, size, "%s", words[option->word]);

	for (size_t i = 0; i < sizeof pairs / sizeof *pairs && used < size; i++)
		if (pairs[i].value && *pairs[i].value)
			used += (size_t)snprintf(buf + used, size - used, ",%s=%s", pairs[i].key, pairs[i].value);
}

bool option_allow(const char *list, unsigned *mask)
{
	char copy[LADON_SAID_MAX], *rest = copy, *part;
	unsigned found = 0;

	if (strlen(list) >= sizeof copy)
		return false;
	memcpy(copy, list, strlen(list) + 1);
	while ((part = strsep(&rest, ","))) {
		int at = find(words, part);

		if (at < 0 || at == LADON_DEFAULT)
			return false;
		found |= 1u << at;
	}
	*mask = found;
	return true;
}

bool option_most(const char *text, char *most, size_t size)
{
	return take_duration(text, 1, most, size);
}

enum ladon_word option_nearest(enum ladon_word word, unsigned allowed)
{
	if (word == LADON_DEFAULT || !allowed)
		return word == LADON_DEFAULT ? LADON_DEFAULT : LADON_OBSERVE;
	for (int i = (int)word; i >= 0; i--)
		if (allowed & (1u << i))
			return (enum ladon_word)i;
	for (int i = (int)word; i < LADON_DEFAULT; i++)
		if (allowed & (1u << i))
			return (enum ladon_word)i;
	return LADON_OBSERVE;
}

/* A user's text in it must not play with a terminal or a log. */
static void make_printable(char *line)
{
	for (; *line; line++)
		if (*line < ' ' || *line > '~')
			*line = '?';
}

/* Lowers a key above the site's most; `why` gets to say so. */
static void lower(const char *key, const char *most, char *value, size_t size, char *why)
{
	size_t used = strlen(why);

	if (!*most || !*value || duration_of(value) <= duration_of(most))
		return;
	snprintf(why + used, LADON_LINE_MAX - used, "%s%s=%s: the most here is %s", used ? "; " : "", key, value,
		 most);
	snprintf(value, size, "%s", most);
}

bool option_take(struct ladon_asked *asked, const char *arg, const struct ladon_site *site, bool fresh)
{
	char why[LADON_LINE_MAX] = "", less[LADON_LINE_MAX] = "", names[80], normal[LADON_OPTION_MAX];
	const char *text = option_argument(arg);
	struct ladon_option *value = &asked->value;
	unsigned allowed = site->allowed;

	*asked = (struct ladon_asked){ .asked = true };
	snprintf(asked->said, sizeof asked->said, "%s", text);
	name_words(allowed, names, sizeof names);
	if (!option_parse(text, &asked->value, why)) {
		/* Not understood: without its keys, at the word that never acts. */
		asked->value = (struct ladon_option){ .word = LADON_OBSERVE };
		if (strncmp(why, "not one of ", 11) == 0)
			snprintf(why, sizeof why, "not one of %s", names);
	} else if (asked->value.word != LADON_DEFAULT && !(allowed & (1u << asked->value.word))) {
		snprintf(why, sizeof why, "not allowed here; allowed: %s", names);
	}
	lower("window", site->window_most, value->window, sizeof value->window, less);
	lower("grace", site->grace_most, value->grace, sizeof value->grace, less);
	if (!*why && !*less)
		return true;
	asked->only_less = !*why;
	asked->asked = !fresh || asked->only_less;
	if (!asked->asked) {
		snprintf(asked->line, sizeof asked->line, "ladon: --ladon=" SHOWN ": %.300s", text, why);
		make_printable(asked->line);
		return false;
	}
	asked->value.word = option_nearest(asked->value.word, allowed);
	option_normal(&asked->value, normal, sizeof normal);
	snprintf(asked->line, sizeof asked->line, "ladon: %s--ladon=" SHOWN ": %.200s; here it counts as %s",
		 fresh ? "" : "inherited ", text, *why ? why : less, normal);
	make_printable(asked->line);
	return true;
}
