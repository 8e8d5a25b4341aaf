/* A check that goes on after a failure, and a list of named tests. */
#ifndef LADON_CHECK_H
#define LADON_CHECK_H

#include <stdio.h>
#include <string.h>

extern int check_failures;

#define CHECK(cond, ...) \
	do { \
		if (!(cond)) { \
			check_failures++; \
			fprintf(stderr, "%s:%d: %s: not so: %s", __FILE__, __LINE__, __func__, #cond); \
			fprintf(stderr, " " __VA_ARGS__); \
			fputc('\n', stderr); \
		} \
	} while (0)

#define CHECK_TEXT(got, wanted) \
	CHECK(strcmp((got), (wanted)) == 0, "got \"%s\", wanted \"%s\"", (got), (wanted))

struct check_test {
	const char *name;
	void (*run)(void);
};
#define TEST(f) { #f, f }

/* Runs them all; the program's exit status. */
int check_run(const struct check_test *tests, size_t n);

#endif
