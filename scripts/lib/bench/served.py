"""A server in a pod's network: PORT answers each request with its name, READY says whether it is ready, SINK takes all it gets.
`down` and `up` on standard input decide about READY; the moment of the first answer that says so is printed."""
import socket
import socketserver
import sys
import threading
import time

PORT, READY, SINK = 8080, 8081, 8082
NAME = sys.argv[1].encode() if len(sys.argv) > 1 else b"?"


class Server(socketserver.ThreadingTCPServer):
    allow_reuse_address, daemon_threads, request_queue_size = True, True, 512
    is_up, told = True, True

    def handle_error(self, request, client_address):
        """A client that hangs up first is none."""


class Named(socketserver.BaseRequestHandler):
    def handle(self):
        self.request.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        while self.request.recv(256):
            self.request.sendall(NAME + b"\n")


class Ready(socketserver.BaseRequestHandler):
    def handle(self):
        self.request.recv(4096)
        up, first = Server.is_up, not Server.told
        status = b"200 OK" if up else b"503 Service Unavailable"
        self.request.sendall(b"HTTP/1.1 " + status + b"\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")
        if first:
            now, Server.told = time.monotonic(), True
            print(now, flush=True)


class Sink(socketserver.BaseRequestHandler):
    def handle(self):
        while self.request.recv(1 << 20):
            pass


if __name__ == "__main__":
    for port, handler in [(PORT, Named), (READY, Ready), (SINK, Sink)]:
        threading.Thread(target=Server(("0.0.0.0", port), handler).serve_forever, args=(3600,), daemon=True).start()
    print("serving", flush=True)
    for line in sys.stdin:
        Server.is_up, Server.told = line.strip() == "up", False
