DROP TABLE gpu_use;
