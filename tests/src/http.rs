//! One request over HTTP, from this host.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

/// Returns the body of `GET /` at an address.
///
/// # Errors
/// Nothing answers in time, or not with HTTP.
pub fn get(to: SocketAddr) -> Result<String, String> {
    let text = |error: std::io::Error| format!("{to}: {error}");
    let mut stream = TcpStream::connect_timeout(&to, Duration::from_secs(2)).map_err(text)?;
    stream.set_read_timeout(Some(Duration::from_secs(5))).map_err(text)?;
    stream.write_all(b"GET / HTTP/1.0\r\n\r\n").map_err(text)?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).map_err(text)?;
    let (_, body) = answer.split_once("\r\n\r\n").ok_or_else(|| format!("{to}: no HTTP answer: {answer:?}"))?;
    Ok(body.to_owned())
}
