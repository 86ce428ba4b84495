"""A gateway is stopped while redis-py works, which moves to another one without an error.

Usage: maintenance.py PROGRAM STORES
"""

import signal
import socket
import subprocess
import sys
import threading
import time

import redis


def gateway(program: str, stores: str) -> tuple[subprocess.Popen, int]:
    """Starts a gateway; its port."""
    flags = ["--resp", "127.0.0.1:0", "--http", "off", "--grpc", "off", "--stores", stores]
    process = subprocess.Popen([program, "gateway", *flags], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    ready = process.stdout.readline()
    return process, int(ready.split("resp=")[1].split()[0].rsplit(":", 1)[1])


class Address:
    """The address that clients know: it leads to one gateway after the other."""

    def __init__(self, port: int) -> None:
        self.leads_to = port
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.port = self.listener.getsockname()[1]
        threading.Thread(target=self.accept, daemon=True).start()

    def accept(self) -> None:
        while True:
            near, _ = self.listener.accept()
            far = socket.create_connection(("127.0.0.1", self.leads_to))
            for ends in (near, far), (far, near):
                threading.Thread(target=self.pass_on, args=ends, daemon=True).start()

    @staticmethod
    def pass_on(source: socket.socket, target: socket.socket) -> None:
        try:
            while some := source.recv(65536):
                target.sendall(some)
            target.shutdown(socket.SHUT_WR)
        except OSError:
            pass


def main(program: str, stores: str) -> None:
    (first, port), (second, other_port) = gateway(program, stores), gateway(program, stores)
    address = Address(port)
    # Nothing is sent again: an error would be seen.
    never = redis.retry.Retry(redis.backoff.NoBackoff(), 0)
    client = redis.Redis(port=address.port, db=15, socket_timeout=60, retry=never)
    client.delete("moves")
    done = 0
    while done < 100:
        done = client.incr("moves")
    address.leads_to = other_port
    first.send_signal(signal.SIGTERM)
    while first.poll() is None:
        done += 1
        assert client.incr("moves") == done
        time.sleep(0.002)
    assert first.returncode == 0
    assert client.incr("moves") == done + 1 and done > 100, done
    second.send_signal(signal.SIGINT)
    assert second.wait() == 0


if __name__ == "__main__":
    main(*sys.argv[1:])
