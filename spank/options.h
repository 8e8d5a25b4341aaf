/* --ladon[=WORD[,KEY=VALUE...]]: pure, text in and value out. */
#ifndef LADON_OPTIONS_H
#define LADON_OPTIONS_H

#include <stdbool.h>
#include <stddef.h>

/* From least to most: the order in which "nearest allowed" looks. */
enum ladon_word {
	LADON_OFF,
	LADON_OBSERVE,
	LADON_NOTIFY,
	LADON_CANCEL,
	LADON_REQUEUE,
	LADON_DEFAULT,		/* a bare --ladon, or keys alone: the site's default action */
};
#define LADON_ALL_WORDS ((1u << LADON_DEFAULT) - 1)

#define LADON_OPTION_MAX 128	/* the longest normal text is under 100 */
#define LADON_LINE_MAX 512
#define LADON_SAID_MAX 256	/* of what a user wrote */

struct ladon_option {
	enum ladon_word word;
	const char *class, *beat, *signal;	/* NULL where not given; else a literal of options.c */
	char window[16], grace[16];	/* empty where not given; else as it was written */
};

/* What the site lets a step ask for, from plugstack.conf. */
struct ladon_site {
	unsigned allowed;	/* a bit per word */
	char window_most[16], grace_most[16];	/* as written; empty: any */
};

/* What a callback for --ladon left behind. A later call replaces it whole (S13). */
struct ladon_asked {
	bool asked;
	bool only_less;		/* `line` says no more than that a key was lowered to the site's most */
	char said[LADON_SAID_MAX];	/* as the user wrote it */
	struct ladon_option value;
	char line[LADON_LINE_MAX];	/* what the user has to be told; empty: nothing */
};

/* NULL, "" and "(null)" are one and the same: no argument (S11). Never NULL. */
const char *option_argument(const char *arg);

/* False with one line in `why` (of LADON_LINE_MAX bytes) where the text is not understood. */
bool option_parse(const char *text, struct ladon_option *out, char *why);

/* "cancel,window=10m": words in lower case, keys in one order. */
void option_normal(const struct ladon_option *option, char *buf, size_t size);

/* A bit per word of allow=; false, and `mask` untouched, where a word is not one. */
bool option_allow(const char *list, unsigned *mask);

/* "12h" of window_most= or grace_most=; false, and `most` untouched, where it is no duration. */
bool option_most(const char *text, char *most, size_t size);

/* The word itself, else the next smaller one that is allowed, else the next greater one. */
enum ladon_word option_nearest(enum ladon_word word, unsigned allowed);

/* Takes one --ladon. With `fresh` (typed on this command line) a value that is wrong or not
 * allowed is refused: false, and asked->line says why. Otherwise it never fails a step: it
 * drops to the nearest allowed word, and asked->line says so. A key above the site's most counts
 * as that, fresh or not, and asked->line says so, too. */
bool option_take(struct ladon_asked *asked, const char *arg, const struct ladon_site *site, bool fresh);

#endif
