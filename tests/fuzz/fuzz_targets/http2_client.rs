//! Input from a mapper as a gRPC server: HTTP/2 and HPACK.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    let _ = sampan_grpc::fuzz_client(data);
    let _ = sampan_grpc::fuzz_stream(data);
});
