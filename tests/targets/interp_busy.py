"""Prints its process and thread ids as JSON, then does as told for a minute: collect, idle, spin, holder,
fork."""

import gc
import json
import os
import sys
import threading
import time


def native_id():
    return threading.get_native_id()


def say(**what):
    print(json.dumps(dict(what, pid=os.getpid(), main=native_id())), flush=True)


def spin():
    while time.monotonic() < END:
        for _ in range(10000):
            pass


def collect():
    gc.disable()
    graph = [[[]] for _ in range(300_000)]
    say()
    while time.monotonic() < END:
        begun = time.monotonic()
        gc.collect()
        pause = (time.monotonic() - begun) * float(sys.argv[2])
        ready = time.monotonic() + pause
        while time.monotonic() < ready:
            pass
    del graph


def holder():
    found = []
    started = threading.Event()

    def run():
        found.append(native_id())
        started.set()
        spin()

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    started.wait()
    say(thread=found[0])
    thread.join()


def fork():
    parent = os.getpid()
    child = os.fork()
    if child == 0:
        while os.getppid() == parent:
            for _ in range(10000):
                pass
        os._exit(0)
    say(child=child, parent=parent)
    os.waitpid(child, 0)


END = time.monotonic() + 60
mode = sys.argv[1]
if mode == "collect":
    collect()
elif mode == "holder":
    holder()
elif mode == "fork":
    fork()
else:
    gc.disable()
    say()
    if mode == "spin":
        spin()
    else:
        time.sleep(60)
