/* hops: a SPANK plugin (spank(8)) for sites where tasks start inside a container.
 *
 * Container plugins such as pyxis enter the container before Slurm runs TaskProlog, so Slurm looks
 * for it in there: a job whose container has no /etc/hops would fail, whether it is a hops
 * job or not. This plugin runs the same task_prolog.sh on the node itself, once per step and node,
 * for hops jobs only, and passes its output on to each task. It needs no TaskProlog line.
 *
 *     cc -O2 -Wall -shared -fPIC -o hops_spank.so hops_spank.c      (headers: libslurm-dev)
 *
 * plugstack.conf, after a container plugin's line:
 *
 *     optional /usr/lib/hops/hops_spank.so
 *
 * with scripts=/etc/hops and run_dir=/run/hops-node if these are elsewhere. "optional" means that
 * jobs run without the plugin if the file is missing or built for another release of Slurm. If
 * anything fails in here, the job still starts; at worst it lacks hops' variables.
 */

#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <slurm/spank.h>

SPANK_PLUGIN(hops, 1);

#define MOST_SAID 16384
#define MOST_VARIABLES 512
#define PATIENCE_SECONDS 720 /* task_prolog.sh waits for a silent slurmctld, ten minutes at most */

/* The script's output: read before the tasks are forked, outside of any container; used in each. */
static char said[MOST_SAID];

static const char *option(int ac, char **av, const char *name, const char *otherwise)
{
	size_t length = strlen(name);

	for (int i = 0; i < ac; i++)
		if (!strncmp(av[i], name, length) && av[i][length] == '=')
			return av[i] + length + 1;
	return otherwise;
}

/* Whether prolog.sh or epilog.sh left a file for this job; task_prolog.sh checks who owns it. */
static bool is_hops_job(const char *run_dir, uint32_t job, const char *node)
{
	static const char *const endings[] = { "", ".left" };
	char path[PATH_MAX];
	struct stat status;

	for (int i = 0; i < 2; i++) {
		int length = snprintf(path, sizeof(path), "%s/%u.%s%s", run_dir, job, node,
				      endings[i]);
		if (length < (int) sizeof(path) && !lstat(path, &status))
			return S_ISREG(status.st_mode);
	}
	return false;
}

static double now(void)
{
	struct timespec time;

	clock_gettime(CLOCK_MONOTONIC, &time);
	return time.tv_sec + 1e-9 * time.tv_nsec;
}

/* Whether the script reads the variable: it gets nothing else of a user's environment. */
static bool is_wanted(const char *variable)
{
	static const char *const ours[] = { "SLURM_JOB_ID=", "SLURM_STEP_ID=", "SLURMD_NODENAME=" };
	static const char *const read[] = { "PYTHONPATH=", "HOPS_ASKS=", "HOPS_CPUS_PER_TASK=",
					    "HOPS_JOB_ID=", "SINGULARITY_BINDPATH=", "APPTAINER_BINDPATH=",
					    "SINGULARITY_WRITABLE=", "APPTAINER_WRITABLE=" };

	for (int i = 0; i < 3; i++)
		if (!strncmp(variable, ours[i], strlen(ours[i])))
			return false;
	for (size_t i = 0; i < sizeof(read) / sizeof(*read); i++)
		if (!strncmp(variable, read[i], strlen(read[i])))
			return true;
	return !strncmp(variable, "SLURM", 5);
}

/* Whether sbatch passed on the variables of another job that submitted this one: the script unsets
 * them. */
static bool inherits_variables(char *const *environment, uint32_t job)
{
	for (; environment && *environment; environment++)
		if (!strncmp(*environment, "HOPS_JOB_ID=", 12))
			return strtoul(*environment + 12, NULL, 10) != job;
	return false;
}

/* Executes the script as the job's user for good: slurmstepd only lent this thread the user's rights,
 * and a shell started that way would take back root's. */
static void become_script(const char *script, char **environment, int output)
{
	uid_t uid = geteuid();
	gid_t gid = getegid();
	char *arguments[] = { (char *) script, NULL };
	int null = open("/dev/null", O_RDWR);
	sigset_t none;

	sigemptyset(&none);
	if (setresgid(gid, gid, gid) || setresuid(uid, uid, uid) || null < 0 || chdir("/") ||
	    dup2(output, 1) < 0 || dup2(null, 0) < 0 || dup2(null, 2) < 0 ||
	    sigprocmask(SIG_SETMASK, &none, NULL))
		_exit(126);
	for (int descriptor = 3; descriptor < 1024; descriptor++)
		close(descriptor);
	execve(script, arguments, environment);
	_exit(127);
}

/* Reads to the end, for up to PATIENCE_SECONDS; returns the length, or -1. */
static ssize_t read_all(int input, char *into, size_t most)
{
	double deadline = now() + PATIENCE_SECONDS;
	size_t length = 0;

	while (length < most) {
		double left = deadline - now();
		struct pollfd ready = { .fd = input, .events = POLLIN };
		ssize_t more;

		if (left <= 0)
			return -1;
		if (poll(&ready, 1, (int) (1000 * left) + 1) < 0 && errno != EINTR)
			return -1;
		if (!ready.revents)
			continue;
		more = read(input, into + length, most - length);
		if (more == 0)
			return length;
		if (more < 0 && errno != EINTR && errno != EAGAIN)
			return -1;
		length += more > 0 ? more : 0;
	}
	return -1;
}

static bool ask_script(const char *script, char **environment)
{
	int ends[2], status = -1;
	ssize_t length;
	pid_t child;

	if (pipe2(ends, O_CLOEXEC))
		return false;
	child = fork();
	if (!child)
		become_script(script, environment, ends[1]);
	close(ends[1]);
	length = child > 0 ? read_all(ends[0], said, sizeof(said) - 1) : -1;
	close(ends[0]);
	if (child > 0) {
		if (length < 0)
			kill(child, SIGKILL);
		while (waitpid(child, &status, 0) < 0 && errno == EINTR)
			;
	}
	said[length > 0 && status == 0 ? length : 0] = '\0';
	return length >= 0 && status == 0;
}

int slurm_spank_user_init(spank_t spank, int ac, char **av)
{
	const char *node = getenv("SLURMD_NODENAME");
	char script[PATH_MAX], names[3][320], **from;
	char *environment[MOST_VARIABLES + 4];
	uint32_t job, step;
	int count = 0;

	said[0] = '\0';
	if (!node || spank_get_item(spank, S_JOB_ID, &job) != ESPANK_SUCCESS ||
	    spank_get_item(spank, S_JOB_STEPID, &step) != ESPANK_SUCCESS ||
	    spank_get_item(spank, S_JOB_ENV, &from) != ESPANK_SUCCESS)
		return 0;
	if (!is_hops_job(option(ac, av, "run_dir", "/run/hops-node"), job, node) &&
	    !inherits_variables(from, job))
		return 0;
	snprintf(script, sizeof(script), "%s/task_prolog.sh",
		 option(ac, av, "scripts", "/etc/hops"));
	for (; from && *from && count < MOST_VARIABLES; from++)
		if (is_wanted(*from))
			environment[count++] = *from;
	snprintf(names[0], sizeof(names[0]), "SLURM_JOB_ID=%u", job);
	snprintf(names[1], sizeof(names[1]), "SLURM_STEP_ID=%u", step);
	snprintf(names[2], sizeof(names[2]), "SLURMD_NODENAME=%s", node);
	for (int i = 0; i < 3; i++)
		environment[count++] = names[i];
	environment[count] = NULL;
	if (!ask_script(script, environment))
		slurm_error("hops: %s gave no answer; the job runs without HOPS_ variables", script);
	return 0;
}

int slurm_spank_task_init(spank_t spank, int ac, char **av)
{
	char *rest = NULL;

	for (char *line = strtok_r(said, "\n", &rest); line; line = strtok_r(NULL, "\n", &rest)) {
		char *value = strchr(line, '=');

		if (!strncmp(line, "unset ", 6)) {
			spank_unsetenv(spank, line + 6);
		} else if (!strncmp(line, "export ", 7) && value) {
			*value = '\0';
			spank_setenv(spank, line + 7, value + 1, 1);
		}
	}
	return 0;
}
