DROP TABLE shortages;
