//! What a request for exec or attach asks for, in the words of the API server and in those of a kubelet. Pure.

use crate::backend::SessionOptions;

/// Words of the query: of `PodExecOptions` for the API, `input=1&output=1…` for a kubelet
/// (K8s pkg/registry/core/pod/strategy.go streamParams).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Dialect {
    Api,
    Kubelet,
}

/// Reads the query; `container` is known from elsewhere.
///
/// # Errors
/// What is missing, for the user.
pub fn session(dialect: Dialect, container: &str, query: &str, exec: bool) -> Result<SessionOptions, String> {
    let mut options = SessionOptions { container: container.to_owned(), ..SessionOptions::default() };
    for (key, value) in form_urlencoded::parse(query.as_bytes()) {
        let set = match dialect {
            Dialect::Api => !value.eq_ignore_ascii_case("false") && value != "0",
            Dialect::Kubelet => value == "1",
        };
        match (&*key, dialect) {
            ("stdin", Dialect::Api) | ("input", Dialect::Kubelet) => options.stdin = set,
            ("stdout", Dialect::Api) | ("output", Dialect::Kubelet) => options.stdout = set,
            ("stderr", Dialect::Api) | ("error", Dialect::Kubelet) => options.stderr = set,
            ("tty", _) => options.tty = set,
            ("command", _) if exec => options.command.push(value.into_owned()),
            _ => {}
        }
    }
    // A terminal has one output (K8s staging/src/k8s.io/cri-streaming/pkg/streaming/remotecommand NewOptions).
    options.stderr &= !options.tty;
    if !(options.stdin || options.stdout || options.stderr) {
        return Err("you must specify at least 1 of stdin, stdout, stderr".to_owned());
    }
    if exec && options.command.is_empty() {
        return Err("you must specify at least one command for the container".to_owned());
    }
    Ok(options)
}

/// Ports of one WebSocket: each has two of its 256 channels, and a stream of the node's.
const MOST_PORTS: usize = edge_protocol::stream::MAX_STREAMS;

/// The ports of a port-forward in a WebSocket's own channels: `ports=80&ports=443,8080`; a kubelet says `port`.
///
/// # Errors
/// What is missing or no port, for the user.
pub fn ports(query: &str) -> Result<Vec<u16>, String> {
    let mut ports = Vec::new();
    for (key, value) in form_urlencoded::parse(query.as_bytes()) {
        if key != "ports" && key != "port" {
            continue;
        }
        for text in value.split(',') {
            match text.parse() {
                Ok(_) if ports.len() >= MOST_PORTS => return Err(format!("more than {MOST_PORTS} ports")),
                Ok(0) => return Err(format!("port {text:?} must be > 0")),
                Ok(port) => ports.push(port),
                Err(_) => return Err(format!("unable to parse {text:?} as a port")),
            }
        }
    }
    if ports.is_empty() { Err("query parameter \"ports\" is required".to_owned()) } else { Ok(ports) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_dialects_say_the_same() {
        let api =
            session(Dialect::Api, "c", "command=sh&command=-c&command=a+b&stdin=true&stdout=true&stderr=false", true);
        let kubelet =
            session(Dialect::Kubelet, "c", "command=sh&command=-c&command=a%20b&input=1&output=1&stdout=1", true);
        let expected = SessionOptions {
            container: "c".into(),
            command: vec!["sh".into(), "-c".into(), "a b".into()],
            stdin: true,
            stdout: true,
            ..SessionOptions::default()
        };
        assert_eq!(api, Ok(expected.clone()));
        assert_eq!(kubelet, Ok(expected));
    }

    #[test]
    fn a_terminal_has_no_stderr_and_something_must_be_asked() {
        let tty = session(Dialect::Api, "c", "tty=true&stdout=1&stderr=1&command=sh", true).unwrap();
        assert!(tty.tty && tty.stdout && !tty.stderr);
        assert!(session(Dialect::Api, "c", "command=sh", true).unwrap_err().contains("at least 1 of stdin"));
        assert!(session(Dialect::Kubelet, "c", "output=true&command=sh", true).is_err());
        assert!(session(Dialect::Api, "c", "stdout=1", true).unwrap_err().contains("command"));
        assert!(session(Dialect::Api, "c", "stdout=1", false).is_ok());
    }

    #[test]
    fn ports_are_numbers() {
        assert_eq!(ports("ports=80&ports=443,8080"), Ok(vec![80, 443, 8080]));
        let many = |count: usize| format!("ports={}", vec!["80"; count].join(","));
        assert_eq!(ports(&many(MOST_PORTS)).map(|ports| ports.len()), Ok(MOST_PORTS));
        assert!(ports(&many(MOST_PORTS + 1)).is_err());
        for bad in ["", "ports=", "ports=0", "ports=70000", "port=x"] {
            assert!(ports(bad).is_err(), "{bad}");
        }
    }
}
