"""What is probed: HTTP, bare TCP and gRPC health on three ports, each connection answered the shortest way."""
import socketserver
import threading

HTTP, TCP, GRPC = 8080, 8081, 8082


def frame(kind, flags, stream, payload):
    return len(payload).to_bytes(3, "big") + bytes([kind, flags]) + stream.to_bytes(4, "big") + payload


def header(name, value):
    return b"\0" + bytes([len(name)]) + name + bytes([len(value)]) + value


# SETTINGS; `:status 200`; HealthCheckResponse{SERVING}; `grpc-status: 0` as trailers.
SERVING = (
    frame(4, 0, 0, b"")
    + frame(1, 4, 1, b"\x88" + header(b"content-type", b"application/grpc"))
    + frame(0, 0, 1, b"\0\0\0\0\x02\x08\x01")
    + frame(1, 5, 1, header(b"grpc-status", b"0"))
)
ANSWERS = {HTTP: b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: close\r\n\r\nok", TCP: None, GRPC: SERVING}


class Handler(socketserver.BaseRequestHandler):
    def handle(self):
        answer = ANSWERS[self.server.server_address[1]]
        if answer and self.request.recv(4096):
            self.request.sendall(answer)
            self.request.settimeout(1)
            while self.request.recv(4096):
                pass


class Server(socketserver.ThreadingTCPServer):
    allow_reuse_address = True
    request_queue_size = 64

    def handle_error(self, request, client_address):
        """A prober that hangs up first is none."""


if __name__ == "__main__":
    servers = [Server(("0.0.0.0", port), Handler) for port in ANSWERS]
    for server in servers[1:]:
        threading.Thread(target=server.serve_forever, args=(3600,), daemon=True).start()
    servers[0].serve_forever(3600)
