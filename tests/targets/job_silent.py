"""Loads torch and then never trains: sleeps, reads its input, or waits for a lock or an answer that nobody gives."""

import os
import socket
import sys
import threading
import time

if "plain" not in sys.argv:
    import torch  # noqa: F401


def main():
    mode = sys.argv[1]
    print(f"ready {os.getpid()}", flush=True)
    if mode == "sleep":
        time.sleep(600)
    elif mode == "stdin":
        sys.stdin.read()
    elif mode == "lock":
        lock = threading.Lock()
        lock.acquire()
        lock.acquire()
    elif mode == "socket":
        listening = socket.create_server(("127.0.0.1", 0))
        socket.create_connection(listening.getsockname()).recv(1)
    elif mode == "spin":
        while True:
            sum(range(1000))


if __name__ == "__main__":
    main()
