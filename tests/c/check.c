#include "check.h"

#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

int check_failures;

int check_run(const struct check_test *tests, size_t n)
{
	size_t failed = 0;

	for (size_t i = 0; i < n; i++) {
		int status = 0;
		pid_t pid = fork();	/* the plugin has state for one process: so has each test */

		if (pid == 0) {
			tests[i].run();
			exit(check_failures != 0);
		}
		if (pid < 0 || waitpid(pid, &status, 0) != pid || status != 0) {
			fprintf(stderr, "FAILED %s (status %#x)\n", tests[i].name, (unsigned)status);
			failed++;
		}
	}
	printf("%zu tests, %zu failed\n", n, failed);
	return failed != 0;
}
