DROP TABLE mail_kinds;
