"""What hopsd answers, for other hosts: JSON over HTTP, each request with a MUNGE credential.

`openapi.json` describes it. The server's routes and the client's requests are made from that file.
"""
