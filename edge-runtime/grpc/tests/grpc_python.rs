//! The transport of DMI with the gRPC that mappers in Python use, both ways. Over `unix:` its `:authority` is the percent-encoded
//! path of the socket, as grpc-go's is.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod grpc_support;

use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use grpc_support::*;
use sampan_grpc::{Client, Code, MAX_MESSAGE, Status};
use tokio::task::spawn_blocking;

const SECOND: Duration = Duration::from_secs(1);

/// Where `grpc_requirements.txt` is installed.
fn packages() -> PathBuf {
    let usual = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../.cache/grpcio");
    let packages = std::env::var_os("SAMPAN_GRPCIO").map_or(usual, PathBuf::from);
    assert!(packages.join("grpc").is_dir(), "grpcio is to be in {}: see grpc_requirements.txt", packages.display());
    packages
}

fn peer(role: &str, socket: &Path) -> std::process::Command {
    let mut command = std::process::Command::new("python3");
    command.arg(Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/grpc_peer.py")).arg(role).arg(socket);
    command.env("PYTHONPATH", packages()).env("PYTHONDONTWRITEBYTECODE", "1");
    command
}

#[test]
fn a_client_in_python_calls_this_server() {
    run(async {
        let server = Server::start();
        let mut command = peer("client", &server.socket());
        let output = spawn_blocking(move || command.output().unwrap()).await.unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    });
}

/// Streams of a server in Python: of any size, over any time, with an error, and one that is dropped.
async fn streams(client: &mut Client) {
    let sizes = [0, 1, 70_000, MAX_MESSAGE, 3 << 20, 0, 5];
    let asked = sizes.map(|size: usize| size.to_string()).join(" ");
    let mut stream = client.stream("/t.T/StreamSizes", asked.as_bytes(), PATIENCE);
    for size in sizes {
        let message: Vec<u8> = (0..=255).cycle().take(size).collect();
        assert!(stream.next().await == Some(Ok(message)), "{size}");
    }
    assert_eq!(stream.next().await, None);
    let mut slow = client.stream("/t.T/StreamSlowly", b"3000", SECOND * 2);
    assert_eq!(slow.next().await, Some(Ok(b"first".to_vec())));
    assert_eq!(client.call("/t.T/Echo", b"beside it", PATIENCE).await, Ok(b"beside it".to_vec()));
    assert_eq!(slow.next().await, Some(Ok(b"second".to_vec())));
    assert_eq!(slow.next().await, None);
    let text = "Gerät „Ofen“";
    let mut fails = client.stream("/t.T/StreamFails", text.as_bytes(), PATIENCE);
    assert_eq!(fails.next().await, Some(Ok(b"only".to_vec())));
    assert_eq!(fails.next().await, Some(Err(Status::new(Code::NotFound, text))));
    let mut nothing = client.stream("/t.T/StreamNothing", b"", PATIENCE);
    assert_eq!(code(&nothing.next().await.unwrap()), Code::Unimplemented);
    let mut long = client.stream("/t.T/StreamSizes", (MAX_MESSAGE + 1).to_string().as_bytes(), PATIENCE);
    assert_eq!(code(&long.next().await.unwrap()), Code::ResourceExhausted);
    let mut lives = client.stream("/t.T/StreamLives", b"", PATIENCE);
    assert_eq!(lives.next().await, Some(Ok(b"waits".to_vec())));
    drop(lives);
    assert_eq!(
        client.call("/t.T/GoneStream", b"", PATIENCE).await,
        Ok(b"yes".to_vec()),
        "it learns that the client goes"
    );
}

/// Ends with the test, by its id.
struct Process(std::process::Child);

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn this_client_calls_a_server_in_python() {
    run(async {
        let folder = tempfile::tempdir().unwrap();
        let socket = folder.path().join("mapper.sock");
        let start = || async {
            let mut child = peer("server", &socket).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
            let output = child.stdout.take().unwrap();
            let ready = spawn_blocking(move || {
                let mut line = String::new();
                std::io::BufRead::read_line(&mut std::io::BufReader::new(output), &mut line).unwrap();
                line
            });
            assert_eq!(ready.await.unwrap(), "ready\n");
            Process(child)
        };
        let process = start().await;
        let mut client = Client::new(socket.clone());
        for length in [0, 1, 70_000, 3 << 20] {
            let message: Vec<u8> = (0..=255).cycle().take(length).collect();
            assert_eq!(client.call("/t.T/Echo", &message, PATIENCE).await, Ok(message), "{length}");
        }
        let text = "Gerät „Ofen“ ist 90 % zu heiß\n🔥";
        let expected = Err(Status::new(Code::NotFound, text));
        assert_eq!(client.call("/t.T/NotFound", text.as_bytes(), PATIENCE).await, expected);
        assert_eq!(code(&client.call("/t.T/Nothing", b"", PATIENCE).await), Code::Unimplemented);
        assert_eq!(code(&client.call("/t.T/Late", b"3000", SECOND).await), Code::DeadlineExceeded);
        assert_eq!(client.call("/t.T/Late", b"1", SECOND * 9).await, Ok(Vec::new()));
        streams(&mut client).await;
        let long = (MAX_MESSAGE + 1).to_string();
        assert_eq!(code(&client.call("/t.T/Long", long.as_bytes(), PATIENCE).await), Code::ResourceExhausted);
        assert_eq!(client.call("/t.T/Echo", b"still here", PATIENCE).await, Ok(b"still here".to_vec()));
        drop(process);
        assert_eq!(code(&client.call("/t.T/Echo", b"", SECOND).await), Code::Unavailable);
        let _process = start().await;
        assert_eq!(client.call("/t.T/Echo", b"again", PATIENCE).await, Ok(b"again".to_vec()));
    });
}
