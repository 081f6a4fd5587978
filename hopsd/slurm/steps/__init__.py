"""How a step goes: jobs leave their nodes, held jobs are released and watched until they run."""
