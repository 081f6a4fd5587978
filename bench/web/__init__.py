"""Response times of the web page, and its pictures for the documentation."""
