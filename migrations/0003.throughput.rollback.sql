DROP TABLE throughput;
