DROP TABLE diary;
