"""Calls a CSI driver's controller as its sidecars do, with Google's gRPC (C core).

client.py SOCKET METHOD MESSAGE: MESSAGE is in hex. Prints the answer in hex, or the name of the error's code.
"""

import sys

import grpc

socket, method, message = sys.argv[1:]
with grpc.insecure_channel("unix:" + socket) as channel:
    call = channel.unary_unary(method)
    try:
        print(call(bytes.fromhex(message), timeout=60).hex())
    except grpc.RpcError as error:
        print(error.code().name)
