/* A stand-in for pyxis (NVIDIA): like it, brings a task into another mount namespace before Slurm
 * runs TaskProlog. In there the folder named by hide= is empty. */

#define _GNU_SOURCE
#include <sched.h>
#include <string.h>
#include <sys/mount.h>

#include <slurm/spank.h>

SPANK_PLUGIN(container, 1);

int slurm_spank_task_init_privileged(spank_t spank, int ac, char **av)
{
	char wanted[8];

	if (spank_getenv(spank, "IN_CONTAINER", wanted, sizeof(wanted)) != ESPANK_SUCCESS)
		return 0;
	if (ac < 1 || strncmp(av[0], "hide=", 5) || unshare(CLONE_NEWNS) ||
	    mount("none", "/", NULL, MS_REC | MS_PRIVATE, NULL) ||
	    mount("empty", av[0] + 5, "tmpfs", 0, NULL)) {
		slurm_error("container: %m");
		return -1;
	}
	return 0;
}
