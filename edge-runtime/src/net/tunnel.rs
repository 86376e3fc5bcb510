//! A tunnel through the HTTP proxy: the request for it, and the meaning of the answer (RFC 9110, 9.3.6). Reads the login
//! from its file; owns no socket. Every byte of the proxy is treated as hostile.

use std::io::{self, Read};
use std::path::Path;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use httparse::Status;

use super::authority;
use super::proxy::Proxy;
use crate::sys::files::named;

/// Bytes of all answers up to the empty line of the last.
const LONGEST_HEAD: usize = 8 << 10;
const MOST_HEADERS: usize = 64;
/// Characters of the proxy's own words that are passed on.
const LONGEST_LINE: usize = 200;
/// Bytes of the line with the login.
const LONGEST_LOGIN: u64 = 1 << 10;

/// A tunnel that is asked for.
pub struct Tunnel {
    /// `HOST:PORT` of the server at its end.
    target: String,
    /// `NAME:PASSWORD`.
    login: Option<String>,
    head: Vec<u8>,
    /// Bytes of `head` that are answers before the last.
    interim: usize,
}

impl Tunnel {
    /// A tunnel to this host, without brackets.
    ///
    /// # Errors
    /// The file with the login cannot be read.
    pub fn new(proxy: &Proxy, host: &str, port: u16) -> io::Result<Self> {
        let login = proxy.user_file.as_deref().map(login).transpose()?;
        Ok(Self { target: authority::join(host, port), login, head: Vec::new(), interim: 0 })
    }

    /// What is sent to the proxy.
    pub fn request(&self) -> String {
        let login = self.login.as_deref().map(|login| format!("Proxy-Authorization: Basic {}\r\n", encoded(login)));
        let (target, login) = (&self.target, login.unwrap_or_default());
        format!("CONNECT {target} HTTP/1.1\r\nHost: {target}\r\n{login}\r\n")
    }

    /// Takes the next bytes of the answer, none at its end. Returns whether the tunnel is open.
    ///
    /// # Errors
    /// The proxy refuses, or does not answer in HTTP.
    pub fn hear(&mut self, bytes: &[u8]) -> io::Result<bool> {
        self.head.extend_from_slice(bytes);
        loop {
            let answers = self.head.get(self.interim..).unwrap_or_default();
            let mut headers = [httparse::EMPTY_HEADER; MOST_HEADERS];
            let mut answer = httparse::Response::new(&mut headers);
            let why = match answer.parse(answers) {
                Ok(Status::Partial) if bytes.is_empty() => "it hung up without an answer".to_owned(),
                Ok(Status::Partial) if self.head.len() < LONGEST_HEAD => return Ok(false),
                Ok(Status::Partial) => format!("its answer has no end after {LONGEST_HEAD} bytes"),
                Err(error) => format!("its answer is not HTTP: {error}"),
                Ok(Status::Complete(length)) => match answer.code {
                    Some(200..300) if length == answers.len() => return Ok(true),
                    // A server behind it speaks second.
                    Some(200..300) => "it sent data before it was asked for any".to_owned(),
                    // Any number of them may come before the answer (RFC 9110, 15.2); 101 would end HTTP.
                    Some(100 | 102..200) => {
                        self.interim += length;
                        continue;
                    }
                    Some(407) if self.login.is_none() => "it wants a login (407): set proxy.user-file".to_owned(),
                    // tinyproxy answers a wrong password as a server does.
                    Some(401 | 407) if self.login.is_some() => {
                        "it refuses the login of proxy.user-file, or wants one other than Basic (401, 407)".to_owned()
                    }
                    _ => format!("it answered CONNECT {} with {}", self.target, self.first_line(answers)),
                },
            };
            return Err(io::Error::other(why));
        }
    }

    /// The proxy's own words, without those that it was given as a secret.
    fn first_line(&self, answer: &[u8]) -> String {
        // `httparse` skips empty lines before it.
        let mut lines = answer.split(|byte| *byte == b'\n').map(<[u8]>::trim_ascii);
        let line = lines.find(|line| !line.is_empty()).unwrap_or_default();
        let mut line = String::from_utf8_lossy(line).into_owned();
        let password = self.login.as_deref().and_then(|login| login.split_once(':')).map(|(_, password)| password);
        for secret in self.login.as_deref().map(encoded).iter().map(String::as_str).chain(password) {
            if !secret.is_empty() {
                line = line.replace(secret, "(left out)");
            }
        }
        line.chars().filter(|sign| !sign.is_control()).take(LONGEST_LINE).collect()
    }
}

fn encoded(login: &str) -> String {
    STANDARD.encode(login)
}

/// The first line of the file, `NAME:PASSWORD`.
///
/// # Errors
/// The file cannot be read, or has no such line.
pub fn login(file: &Path) -> io::Result<String> {
    let mut bytes = Vec::new();
    sampan_file::open(file).and_then(|open| open.take(LONGEST_LOGIN).read_to_end(&mut bytes)).map_err(named(file))?;
    let line = bytes.split(|byte| *byte == b'\n').next().unwrap_or_default();
    let is_whole = bytes.len() > line.len() || (line.len() as u64) < LONGEST_LOGIN;
    // Editors of other systems leave a mark at the beginning.
    let login = std::str::from_utf8(line).map(|line| line.trim_start_matches('\u{feff}').trim());
    match login {
        Ok(login) if is_whole && login.contains(':') && !login.chars().any(char::is_control) => Ok(login.to_owned()),
        _ => {
            let why = format!("want one line NAME:PASSWORD in UTF-8, shorter than {LONGEST_LOGIN} bytes");
            Err(named(file)(io::Error::other(why)))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tunnel(login: Option<&str>) -> Tunnel {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("proxy.user");
        let user_file = login.map(|login| {
            std::fs::write(&file, login).unwrap();
            file.clone()
        });
        Tunnel::new(&Proxy { user_file, ..Proxy::default() }, "bridge.example", 7443).unwrap()
    }

    /// What a tunnel makes of an answer that comes in these pieces.
    fn heard(login: Option<&str>, pieces: &[&str]) -> Result<bool, String> {
        let mut tunnel = tunnel(login);
        let mut last = Ok(false);
        for piece in pieces {
            assert_eq!(last, Ok(false), "it goes on");
            last = tunnel.hear(piece.as_bytes()).map_err(|error| error.to_string());
        }
        last
    }

    #[test]
    fn request_has_the_name_and_the_login() {
        let open = "CONNECT bridge.example:7443 HTTP/1.1\r\nHost: bridge.example:7443\r\n";
        assert_eq!(tunnel(None).request(), format!("{open}\r\n"));
        let login = tunnel(Some("Aladdin:open sesame\n"));
        // The example of RFC 7617, 2.
        let basic = "Proxy-Authorization: Basic QWxhZGRpbjpvcGVuIHNlc2FtZQ==\r\n";
        assert_eq!(login.request(), format!("{open}{basic}\r\n"));
        // A password may have colons, and be of any script; other systems mark the file and end lines in another way.
        let login = tunnel(Some("\u{feff}name:p\u{e4}ss:word\r\n# since May\n"));
        let basic = format!("Proxy-Authorization: Basic {}\r\n", encoded("name:p\u{e4}ss:word"));
        assert_eq!(login.request(), format!("{open}{basic}\r\n"));
    }

    #[test]
    fn answer_opens_the_tunnel_or_says_why_not() {
        assert_eq!(heard(None, &["HTTP/1.1 200 Connection established\r\n\r\n"]), Ok(true));
        assert_eq!(heard(None, &["HTTP/1.0 2", "00 OK\r\nVia: a\r\n", "\r\n"]), Ok(true));
        let interim = "HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nLink: a\r\n\r\n";
        assert_eq!(heard(None, &[interim, "HTTP/1.1 200 OK\r\n\r\n"]), Ok(true));
        assert_eq!(heard(None, &[&format!("{interim}HTTP/1.1 2"), "00 OK\r\n\r\n"]), Ok(true));
        for (login, answer, why) in [
            (None, "HTTP/1.1 407 Who\r\n\r\n<html>", "set proxy.user-file"),
            (Some("a:b"), "HTTP/1.1 407 Who\r\n\r\n", "refuses the login of proxy.user-file"),
            (Some("a:b"), "HTTP/1.0 401 Unauthorized\r\n\r\n", "refuses the login of proxy.user-file"),
            (None, "HTTP/1.0 401 Unauthorized\r\n\r\n", "with HTTP/1.0 401 Unauthorized"),
            (None, "HTTP/1.1 403 Filtered\r\n\r\nno", "CONNECT bridge.example:7443 with HTTP/1.1 403 Filtered"),
            (None, "HTTP/1.1 101 Switching Protocols\r\n\r\n", "101 Switching"),
            (None, "HTTP/1.1 302 Found\r\nLocation: http://log.in/\r\n\r\n", "with HTTP/1.1 302 Found"),
            (None, "HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 502 Bad Gateway\r\n\r\n", "with HTTP/1.1 502 Bad"),
            (None, "\r\nHTTP/1.1 503 Busy\r\n\r\n", "with HTTP/1.1 503 Busy"),
            (None, "HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\n\r\n\u{16}", "before it was asked"),
            (None, "\0\0HTTP/1.1 200 OK\r\n\r\n", "not HTTP"),
            (None, "HTTP/1.1 200 OK\r\n\r\n\u{16}", "before it was asked"),
            (None, "SSH-2.0-OpenSSH_9.2\r\n", "not HTTP"),
            (None, "", "hung up"),
            (Some("a:hunter22"), "HTTP/1.1 403 hunter22 YTpodW50ZXIyMg==\r\n\r\n", "(left out) (left out)"),
        ] {
            let said = heard(login, &[answer]).unwrap_err();
            assert!(said.contains(why) && !said.contains("hunter22"), "{answer:?}: {said}");
        }
        assert_eq!(heard(None, &["HTTP/1.1 200 OK\r\n", ""]), Err("it hung up without an answer".to_owned()));
    }

    #[test]
    fn endless_answer_is_refused_in_time() {
        let (mut endless, mut talkative) = (tunnel(None), tunnel(None));
        assert!(!endless.hear(b"HTTP/1.1 200 OK\r\nVia: ").unwrap());
        let pieces = (0..).take_while(|_| matches!(endless.hear(&[b'a'; 512]), Ok(false))).count();
        assert_eq!(pieces, LONGEST_HEAD / 512 - 1, "no more than the bound is kept");
        let interim = b"HTTP/1.1 100 Continue\r\n\r\n";
        let answers = (0..).take_while(|_| matches!(talkative.hear(interim), Ok(false))).count();
        assert_eq!(answers, LONGEST_HEAD / interim.len(), "answers before the last count, too");
        let many = "a: b\r\n".repeat(MOST_HEADERS + 1);
        assert!(heard(None, &[&format!("HTTP/1.1 200 OK\r\n{many}\r\n")]).unwrap_err().contains("too many headers"));
    }

    #[test]
    fn file_without_a_login_is_named() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("proxy.user");
        let proxy = Proxy { user_file: Some(file.clone()), ..Proxy::default() };
        let error = || Tunnel::new(&proxy, "a.example", 1).err().map(|error| error.to_string()).unwrap_or_default();
        assert!(error().contains("proxy.user"), "{}", error());
        let long = format!("name:{}", "a".repeat(1 << 10));
        for wrong in ["", "hunter22", "\nname:hunter22", "name:hunter22\u{7}", "name:hunt\rer22", &long] {
            std::fs::write(&file, wrong).unwrap();
            assert!(error().contains("proxy.user: want one line NAME:PASSWORD"), "{}", error());
        }
        std::fs::write(&file, b"name:hunter22\xe4").unwrap();
        assert!(error().contains("in UTF-8"), "{}", error());
        std::fs::remove_file(&file).unwrap();
        nix::unistd::mkfifo(&file, nix::sys::stat::Mode::S_IRWXU).unwrap();
        assert!(error().contains("proxy.user: this is a pipe"), "{}", error());
    }
}
