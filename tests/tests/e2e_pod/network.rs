//! The network of a pod: its own address, other pods, names, and the host's network.

use sampan_tests::manifest::{pod, shell, with, with_spec};
use sampan_tests::{Cluster, can_run};
use serde_json::json;

#[test]
fn pods_reach_each_other_by_address() {
    if !can_run() {
        return;
    }
    let cluster = Cluster::start("net");
    let node = cluster.node("edge");
    let (kubectl, on) = (&cluster.kubectl, node.name.as_str());
    let serve = "echo served >/tmp/index.html; exec httpd -f -p 8080 -h /tmp";
    let named = with_spec(
        pod("named", on, json!([shell("c", "hostname; cat /etc/hosts; cat /etc/resolv.conf; exec sleep 1000")])),
        &json!({"hostname": "board", "dnsPolicy": "None", "dnsConfig": {"nameservers": ["192.0.2.1"], "searches": ["lan"]},
            "hostAliases": [{"ip": "192.0.2.7", "hostnames": ["printer"]}]}),
    );
    let addresses = json!({"env": [{"name": "OWN", "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}}}]});
    let host = with_spec(
        pod("host", on, json!([with(shell("c", "ls /sys/class/net; echo own $OWN; exec sleep 1000"), &addresses)])),
        &json!({"hostNetwork": true}),
    );
    let alone = with_spec(
        pod("alone", on, json!([shell("c", "ls /sys/class/net; hostname")])),
        &json!({"restartPolicy": "Never", "hostname": "no", "hostnameOverride": "front.example"}),
    );
    kubectl.apply_all(&[pod("server", on, json!([shell("c", serve)])), named, host, alone]);
    let server = kubectl.wait_ready("server");
    let address = server["status"]["podIP"].as_str().expect("an address").to_owned();
    assert_ne!(address, server["status"]["hostIP"]);
    assert_eq!(server["status"]["podIPs"][0]["ip"], address.as_str());

    let fetch = format!("until wget -qO- http://{address}:8080/; do sleep 0.2; done; ip -4 addr show dev eth0");
    let client = with(shell("c", &fetch), &json!({}));
    kubectl.apply_all(&[with_spec(pod("client", on, json!([client])), &json!({"restartPolicy": "Never"}))]);
    let client = kubectl.wait_phase("client", "Succeeded");
    let log = kubectl.ok(&["logs", "client"]);
    let own = client["status"]["podIP"].as_str().expect("an address");
    assert!(log.contains("served\n") && log.contains(&format!("inet {own}/")), "{log}");
    assert_ne!(own, address);

    let named = kubectl.wait_ready("named");
    let log = kubectl.wait_log("named", "search lan");
    assert!(log.starts_with("board\n") && log.contains("192.0.2.7\tprinter"), "{log}");
    assert!(log.contains("nameserver 192.0.2.1"), "{log}");
    assert!(log.contains(&format!("{}\tboard", named["status"]["podIP"].as_str().unwrap_or_default())), "{log}");

    let host = kubectl.wait_ready("host");
    assert_eq!(host["status"]["podIP"], host["status"]["hostIP"]);
    let links = kubectl.wait_log("host", "own");
    assert!(links.contains(&format!("own {}\n", host["status"]["hostIP"].as_str().unwrap_or_default())), "{links}");
    assert!(links.lines().any(|link| link.starts_with("smp-")), "{links}");
    kubectl.wait_phase("alone", "Succeeded");
    assert_eq!(kubectl.ok(&["logs", "alone"]), "eth0\nlo\nfront.example\n");
}
