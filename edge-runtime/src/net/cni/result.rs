//! Parses the output of a plugin: a result, or an error. Pure; the output is untrusted.

use std::net::IpAddr;

use serde_json::Value;

use super::{CniError, POD_LINK, VERSIONS, bad};
use crate::sys::from_json::from_json;

/// A plugin that prints more has gone wrong.
pub const SIZE_LIMIT: usize = 256 * 1024;
/// Addresses and links of one result; a pod has one or two.
const LIST_LIMIT: usize = 64;
/// Maximum length of a plugin's message in an event.
const MESSAGE_LIMIT: usize = 1024;

/// A result that holds what it must.
#[derive(Clone, Debug, PartialEq)]
pub struct CniResult {
    /// The object as it was printed: the next plugin's `prevResult`.
    pub raw: Value,
    /// The pod's addresses, at most one of each family, in the plugin's order.
    pub ips: Vec<IpAddr>,
}

/// Reads the result of ADD.
///
/// # Errors
/// It is too large, no JSON object, of an unknown version, or an address or link in it is of no use.
pub fn parse(bytes: &[u8]) -> Result<CniResult, CniError> {
    if bytes.len() > SIZE_LIMIT {
        return bad(format!("the result is larger than {SIZE_LIMIT} bytes"));
    }
    let raw: Value = from_json(bytes).map_err(|error| CniError(format!("no JSON: {error}")))?;
    if !raw.is_object() {
        return bad("no JSON object");
    }
    match raw.get("cniVersion") {
        Some(Value::String(version)) if VERSIONS.contains(&version.as_str()) => {}
        other => return bad(format!("cniVersion {} is not among {}", shown(other), VERSIONS.join(", "))),
    }
    let interfaces = list(&raw, "interfaces")?;
    let mut ips: Vec<IpAddr> = Vec::new();
    for (index, item) in list(&raw, "ips")?.iter().enumerate() {
        let ip = address(item).ok_or_else(|| {
            CniError(format!("ips[{index}].address {} is no address of a pod", shown(item.get("address"))))
        })?;
        if in_pod(item, interfaces, index)? && !ips.iter().any(|held| held.is_ipv4() == ip.is_ipv4()) {
            ips.push(ip);
        }
    }
    Ok(CniResult { raw, ips })
}

fn list<'a>(raw: &'a Value, key: &str) -> Result<&'a [Value], CniError> {
    match raw.get(key) {
        None | Some(Value::Null) => Ok(&[]),
        Some(Value::Array(items)) if items.len() <= LIST_LIMIT => Ok(items),
        Some(Value::Array(items)) => bad(format!("{key} has {} items, more than {LIST_LIMIT}", items.len())),
        Some(_) => bad(format!("{key} is no list")),
    }
}

/// `10.1.2.3/24`, usable by a pod.
fn address(item: &Value) -> Option<IpAddr> {
    let (ip, prefix) = item.get("address")?.as_str()?.split_once('/')?;
    let (ip, prefix): (IpAddr, u8) = (ip.parse().ok()?, prefix.parse().ok()?);
    let usable = !ip.is_loopback() && !ip.is_unspecified() && !ip.is_multicast();
    (usable && prefix <= if ip.is_ipv4() { 32 } else { 128 }).then_some(ip)
}

/// Whether an address is of the pod's link: it names it by its place in `interfaces`, or none.
fn in_pod(item: &Value, interfaces: &[Value], index: usize) -> Result<bool, CniError> {
    let place = match item.get("interface") {
        None | Some(Value::Null) => return Ok(true),
        Some(place) => place,
    };
    let link = place.as_u64().and_then(|place| interfaces.get(usize::try_from(place).ok()?));
    let Some(link) = link else { return bad(format!("ips[{index}].interface {place} names none of interfaces")) };
    let text = |key: &str| link.get(key).and_then(Value::as_str).unwrap_or_default();
    Ok(text("name") == POD_LINK && !text("sandbox").is_empty())
}

fn shown(value: Option<&Value>) -> String {
    let text = value.map_or_else(|| "(none)".to_owned(), Value::to_string);
    clean(&text, 80)
}

/// Message of a failed plugin: `msg` and `details` of its error object, otherwise its standard error.
pub fn failure(stdout: &[u8], stderr: &[u8], status: &str) -> String {
    let object: Option<Value> = stdout.get(..stdout.len().min(SIZE_LIMIT)).and_then(|all| from_json(all).ok());
    let text = |key: &str| object.as_ref().and_then(|all| all.get(key)).and_then(Value::as_str).unwrap_or_default();
    let (message, details) = (text("msg"), text("details"));
    let said = match (message.is_empty(), details.is_empty()) {
        (false, true) => message.to_owned(),
        (false, false) => format!("{message}; {details}"),
        (true, _) => {
            let other = if stderr.is_empty() { stdout } else { stderr };
            let other = String::from_utf8_lossy(other.get(..other.len().min(SIZE_LIMIT)).unwrap_or_default());
            match other.trim() {
                "" => format!("{status} without a word"),
                words => format!("{status}: {words}"),
            }
        }
    };
    clean(&said, MESSAGE_LIMIT)
}

/// Fit for a log line and an event: no control characters, not endless.
fn clean(text: &str, limit: usize) -> String {
    let mut kept: String = text.chars().take(limit).map(|c| if c.is_control() { ' ' } else { c }).collect();
    if text.chars().nth(limit).is_some() {
        kept.push_str("...");
    }
    kept
}

#[cfg(test)]
mod tests {
    use super::*;

    const GOOD: &str = r#"{"cniVersion":"1.0.0","interfaces":[{"name":"cni0","mac":"x"},{"name":"veth1"},
        {"name":"eth0","mac":"y","sandbox":"/run/ns/net"}],
        "ips":[{"interface":2,"address":"10.1.0.5/24","gateway":"10.1.0.1"},{"interface":2,"address":"fd00::5/64"}],
        "routes":[{"dst":"0.0.0.0/0"}],"dns":{}}"#;

    #[test]
    fn the_pods_addresses_are_those_of_its_link() {
        let ips: Vec<IpAddr> = vec!["10.1.0.5".parse().unwrap(), "fd00::5".parse().unwrap()];
        assert_eq!(parse(GOOD.as_bytes()).unwrap().ips, ips);
        let old = r#"{"cniVersion":"0.3.1","ips":[{"version":"4","address":"10.1.0.5/24"}]}"#;
        assert_eq!(parse(old.as_bytes()).unwrap().ips, ips[..1]);
        let host = GOOD.replace("\"interface\":2,\"address\":\"10", "\"interface\":0,\"address\":\"10");
        assert_eq!(parse(host.as_bytes()).unwrap().ips, ips[1..]);
    }

    #[test]
    fn hostile_results_are_refused_by_name() {
        let many = format!(r#"{{"cniVersion":"1.0.0","ips":[{}]}}"#, vec!["{}"; 65].join(","));
        let deep = "[".repeat(100_000);
        let large = format!(r#"{{"cniVersion":"1.0.0","x":"{}"}}"#, "y".repeat(SIZE_LIMIT));
        for (text, named) in [
            ("", "JSON"),
            ("null", "object"),
            ("{}", "cniVersion"),
            (r#"{"cniVersion":1}"#, "cniVersion"),
            (r#"{"cniVersion":"2.0.0"}"#, "2.0.0"),
            (r#"{"cniVersion":"1.0.0","ips":{}}"#, "ips"),
            (r#"{"cniVersion":"1.0.0","ips":[{"address":"10.0.0.1"}]}"#, "ips[0]"),
            (r#"{"cniVersion":"1.0.0","ips":[{"address":"10.0.0.1/33"}]}"#, "ips[0]"),
            (r#"{"cniVersion":"1.0.0","ips":[{"address":"127.0.0.1/8"}]}"#, "ips[0]"),
            (r#"{"cniVersion":"1.0.0","ips":[{"address":"10.0.0.1/8","interface":0}]}"#, "interface"),
            (
                r#"{"cniVersion":"1.0.0","interfaces":[{}],"ips":[{"address":"10.0.0.1/8","interface":-1}]}"#,
                "interface",
            ),
            (many.as_str(), "65"),
            (deep.as_str(), "JSON"),
            (large.as_str(), "larger"),
        ] {
            let error = parse(text.as_bytes()).unwrap_err().to_string();
            assert!(error.contains(named), "{error}");
        }
    }

    #[test]
    fn every_cut_of_a_result_ends_in_an_answer() {
        for cut in 0..GOOD.len() {
            assert!(parse(&GOOD.as_bytes()[..cut]).is_err());
            let mut bytes = GOOD.as_bytes().to_vec();
            bytes[cut] ^= 0x15;
            let _ = parse(&bytes);
        }
    }

    #[test]
    fn failures_speak_in_the_plugins_words() {
        let error = br#"{"cniVersion":"1.0.0","code":11,"msg":"no addresses","details":"pool is\n full"}"#;
        assert_eq!(failure(error, b"noise", "exit status: 1"), "no addresses; pool is  full");
        assert_eq!(failure(b"", b"", "exit status: 2"), "exit status: 2 without a word");
        assert_eq!(failure(b"x", b"", "signal: 9"), "signal: 9: x");
        assert!(failure(&[b'z'; 5000], b"", "1").len() < 1100);
    }
}
