"""hopsd's answers for other hosts: JSON over HTTP, each request with a MUNGE credential.

`openapi.json` describes the API; the server's routes and the client's requests are made from it.
"""
