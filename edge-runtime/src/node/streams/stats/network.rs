//! Counters of network interfaces, from `/proc/PID/net/dev`.

use sampan_json::SetField;
use serde_json::{Value, json};

/// Traffic of one network namespace: its first interface beside the loopback, and all interfaces. `None` without one.
pub(super) fn of(pid: &str, time: &str) -> Option<Value> {
    parse(&std::fs::read_to_string(format!("/proc/{pid}/net/dev")).ok()?, time)
}

fn parse(text: &str, time: &str) -> Option<Value> {
    let interfaces: Vec<Value> = text.lines().filter_map(interface).collect();
    let main = interfaces.iter().find(|one| one["name"] == "eth0").or_else(|| interfaces.first())?;
    let mut all = main.clone();
    all.set("time", json!(time));
    all.set("interfaces", json!(interfaces));
    Some(all)
}

/// Columns as the kernel's `dev_seq_printf_stats`: received bytes, packets, errors, ...; sent from the ninth on.
fn interface(line: &str) -> Option<Value> {
    let (name, counters) = line.split_once(':')?;
    let name = name.trim();
    // Pods' ends of their links are the pods' business.
    if name == "lo" || name.starts_with("veth") {
        return None;
    }
    let counters: Vec<u64> = counters.split_ascii_whitespace().filter_map(|word| word.parse().ok()).collect();
    let [rx, rx_errors, tx, tx_errors] = [0, 2, 8, 10].map(|at| counters.get(at).copied());
    Some(json!({"name": name, "rxBytes": rx?, "rxErrors": rx_errors?, "txBytes": tx?, "txErrors": tx_errors?}))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn interface_of_the_pod_is_reported() {
        let text = "Inter-|   Receive                                                |  Transmit\n \
            face |bytes    packets errs drop fifo frame compressed multicast|bytes    packets errs drop fifo\n    \
            lo:     840      10    0    0    0     0          0         0      840      10    0    0    0     0 0 0\n  \
            eth0:    1312       16    1    0    0     0          0         0      516       6    2    0    0     0 0 0\n";
        let value = parse(text, "T").unwrap();
        assert_eq!((&value["name"], &value["rxBytes"], &value["txBytes"]), (&json!("eth0"), &json!(1312), &json!(516)));
        assert_eq!((&value["rxErrors"], &value["txErrors"]), (&json!(1), &json!(2)));
        assert_eq!(value["interfaces"].as_array().unwrap().len(), 1);
        assert_eq!(parse("lo: 1 2 3 4 5 6 7 8 9 10 11 12", "T"), None);
    }
}
